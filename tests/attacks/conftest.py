"""The command line, as in tests/cli."""

from tests.cli.conftest import Invoke as Invoke
from tests.cli.conftest import invoke as invoke
from tests.cli.conftest import pictures_once as pictures_once
from tests.cli.conftest import place as place
from tests.cli.conftest import quick as quick
