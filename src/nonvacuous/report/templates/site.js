(() => {
  "use strict";
  document.querySelectorAll("table.runs").forEach((table) => {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const key = (row, column) => row.cells[column].dataset.sort;
    // Where rows are cards, the headings stay as buttons only if there are any.
    table.classList.add("sortable");
    heads.forEach((head, column) => {
      const numeric = head.dataset.kind === "number";
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const order = (a, b) => {
          const one = key(a, column), two = key(b, column);
          if (one === undefined || two === undefined) {
            return (one === undefined) - (two === undefined);
          }
          const sign = up ? 1 : -1;
          return sign * (numeric ? Number(one) - Number(two) : one.localeCompare(two, "en", { numeric: true }));
        };
        body.append(...[...body.rows].sort(order));
      });
    });
  });
})();
