"""What Lighthouse would ask of every page: contrast, names, headings, keyboard, width; and pictures
whose words are large enough, keep apart, and are covered by no mark or line.

Usage: python scripts/check-access.py build/site (one page of every kind), or name the files. Needs
Chromium; `make docs` runs it where there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = Path("/usr/bin/chromium")
KINDS = (
    *("index.html", "explorer.html", "gallery.html", "search.html", "genindex.html"),
    *("questions/test-set.html", "reference/bounds.html", "reference/certify.html"),
    *("validity.html", "results.html", "glossary.html", "decisions/index.html"),
    *("notebooks/first-report.html", "notebooks/pac-bayes.html"),
)
LOOKS = ((1280, "light"), (1280, "dark"), (768, "light"), (390, "light"))
FOUND = """() => {
  const found = [];
  const shown = (e) => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
  const words = (e) => (e.textContent || '').trim().slice(0, 40);
  const rgb = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.backgroundImage !== 'none' && !at.matches('.wide')) return null;
      const color = rgb(style.backgroundColor);
      if (color.length < 4 || color[3] > 0.99) return color;
    }
    return [255, 255, 255];
  };
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !shown(e) || e.closest('svg, [aria-hidden=true], script, style')) continue;
    const style = getComputedStyle(e), under = ground(e);
    if (!under || rgb(style.color)[3] < 0.99) continue;
    const [a, b] = [light(rgb(style.color)), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && parseInt(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${words(e)}`);
  }
  for (const e of document.querySelectorAll('img')) {
    if (!e.hasAttribute('alt')) found.push(`no alternative text: ${e.src.slice(-40)}`);
  }
  for (const e of document.querySelectorAll('svg')) {
    const named = e.getAttribute('aria-label') || e.querySelector('title') ||
      e.getAttribute('aria-labelledby');
    if (shown(e) && !named && !e.closest('[aria-hidden=true], a, button, label') &&
      !e.closest('[role=img]')) found.push(`a picture without a name: ${e.outerHTML.slice(0, 60)}`);
  }
  const levels = [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter(shown);
  if (levels.filter((e) => e.tagName === 'H1').length !== 1) found.push('not exactly one h1');
  levels.reduce((before, e) => {
    const level = Number(e.tagName[1]);
    if (level > before + 1) found.push(`h${before} is followed by h${level}: ${words(e)}`);
    return level;
  }, 0);
  for (const e of document.querySelectorAll('input:not([type=hidden]), select, textarea')) {
    const named = e.labels?.length || e.getAttribute('aria-label') || e.title || e.placeholder;
    if (shown(e) && !named) found.push(`a field without a label: ${e.id || e.name}`);
  }
  for (const e of document.querySelectorAll('a[href], button')) {
    const named = words(e) || e.ariaLabel || e.title || e.querySelector('img[alt]');
    if (shown(e) && !named) found.push(`a link without a name: ${e.outerHTML.slice(0, 60)}`);
  }
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  const twice = ids.filter((id, i) => ids.indexOf(id) !== i);
  if (twice.length) found.push(`ids that occur twice: ${[...new Set(twice)].slice(0, 3)}`);
  if (!document.documentElement.lang) found.push('no language');
  if (!document.title) found.push('no title');
  if (document.documentElement.scrollWidth > innerWidth + 1) found.push('scrolls sideways');
  return found;
}"""
FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const style = getComputedStyle(e);
  const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return [e.outerHTML.slice(0, 60), ring || style.boxShadow !== 'none' || e.tagName === 'INPUT'];
}"""

# Small shapes by their boxes, lines by points along them, against the letters of every text.
COVERED = """() => {
  document.querySelectorAll('details').forEach((e) => { e.open = true; });
  const found = new Set();
  for (const svg of document.querySelectorAll('svg')) {
    if (!svg.checkVisibility() || !svg.querySelector('text')) continue;
    const scale = svg.getScreenCTM().a;
    const letters = [...svg.querySelectorAll('text:not(:has(tspan)), tspan')]
      .filter((e) => e.textContent.trim())
      .map((e) => {
        const r = e.getBoundingClientRect(), air = 0.2 * Math.min(r.width, r.height);
        return [r.left + air, r.right - air, r.top + air, r.bottom - air, e.textContent.trim()];
      });
    const cover = (left, right, top, bottom, what) => {
      for (const [l, r, t, b, text] of letters) {
        if (left < r && right > l && top < b && bottom > t) {
          found.add(`${what} covers words: ${text.slice(0, 40)}`);
        }
      }
    };
    for (const e of svg.querySelectorAll('path, use, circle, rect, ellipse, polygon, line')) {
      if (e.closest('defs, clipPath, symbol, pattern')) continue;
      const style = getComputedStyle(e);
      const stroked = style.stroke !== 'none', filled = style.fill !== 'none';
      const box = e.getBoundingClientRect();
      if (!(stroked || filled) || style.opacity === '0') continue;
      const clip = (e.closest('[clip-path]')?.getAttribute('clip-path') || '').match(/#([^)"']+)/);
      const frame = clip && document.getElementById(clip[1])?.firstElementChild?.getBBox();
      const inside = (p) => !frame || (p.x >= frame.x - 1 && p.x <= frame.x + frame.width + 1 &&
        p.y >= frame.y - 1 && p.y <= frame.y + frame.height + 1);
      if (box.width <= 26 * scale && box.height <= 26 * scale) {
        const own = svg.getScreenCTM().inverse();
        const middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2);
        if (inside(middle.matrixTransform(own))) {
          cover(box.left, box.right, box.top, box.bottom, 'a mark');
        }
      } else if (stroked && !filled && e.getTotalLength) {
        const length = e.getTotalLength(), matrix = e.getScreenCTM();
        for (let at = 0; at <= length; at += Math.max(2, length / 2000)) {
          const point = e.getPointAtLength(at), seen = point.matrixTransform(matrix);
          if (inside(point)) cover(seen.x, seen.x, seen.y, seen.y, 'a line');
        }
      }
    }
  }
  return [...found];
}"""

# As the reader sees them: a picture that is scaled down scales its words. In pixels.
CRAMPED = """() => {
  document.querySelectorAll('details').forEach((e) => { e.open = true; });
  const found = new Set();
  for (const svg of document.querySelectorAll('svg')) {
    if (!svg.checkVisibility() || svg.closest('[aria-hidden=true], a, button, label')) continue;
    const frame = svg.getBoundingClientRect();
    const letters = [...svg.querySelectorAll('text:not(:has(tspan)), tspan')]
      .filter((e) => e.textContent.trim() && e.checkVisibility());
    const boxes = letters.map((e) => {
      const text = e.textContent.trim().slice(0, 40), m = e.closest('text').getScreenCTM();
      const scale = Math.sqrt(Math.abs(m.a * m.d - m.b * m.c));
      const size = scale * parseFloat(getComputedStyle(e).fontSize);
      if (size < 11) found.add(`words of ${size.toFixed(1)} px: ${text}`);
      const r = e.getBoundingClientRect();
      if (r.left < frame.left - 2 || r.right > frame.right + 2 || r.top < frame.top - 2 ||
        r.bottom > frame.bottom + 2) found.add(`words cut off: ${text}`);
      const air = 0.2 * Math.min(r.width, r.height);
      return [r.left + 1, r.right - 1, r.top + air, r.bottom - air, text];
    });
    boxes.forEach(([left, right, top, bottom, text], i) => {
      for (const [l, r, t, b, other] of boxes.slice(0, i)) {
        if (left < r && right > l && top < b && bottom > t) {
          found.add(`words on words: ${text} / ${other}`);
        }
      }
    });
  }
  return [...found];
}"""


def findings(page: Page, *, stops: int = 12) -> list[str]:
    """What is wrong with the open page, as sentences; and with its first stops by keyboard."""
    said = list(page.evaluate(FOUND))
    for _ in range(stops):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused is None:
            break
        if not focused[1]:
            said.append(f"focus cannot be seen: {focused[0]}")
    return [*said, *page.evaluate(COVERED), *page.evaluate(CRAMPED)]


def visited(page: Page, file: Path) -> list[str]:
    """What is wrong with a file, opened in this page as on a desk, on a telephone, in the dark."""
    said = []
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme=scheme)
        page.goto(file.resolve().as_uri())
        said += [f"{width} px, {scheme}: {line}" for line in findings(page)]
    return said


def main() -> None:
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        print(f"{CHROMIUM} is missing: pages were not looked at")
        return
    files = [Path(name) for name in sys.argv[1:]]
    if len(files) == 1 and files[0].is_dir():
        site = files[0]
        files = [site / kind for kind in KINDS if (site / kind).exists()]
        files += [*sorted((site / "reports").glob("*.html")), site / "reports/sweep/index.html"]
    failed = False
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=str(CHROMIUM), args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        for file in files:
            for line in visited(page, file):
                failed = True
                print(f"{file}: {line}")
        browser.close()
    print(f"{len(files)} pages looked at")
    sys.exit(failed)


if __name__ == "__main__":
    main()
