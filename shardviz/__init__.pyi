# The public names, once: `__init__.py` loads them from where this says when they are first used.
from . import compat as compat
from . import errors as errors
from . import gallery as gallery
from . import notation as notation
from .ask import Program as Program
from .ask import analyze as analyze
from .ask import trace as trace
from .cli.magic import load_ipython_extension as load_ipython_extension
from .compat.export_files import load as load
from .compiler.targets import targets as targets
from .costs import Chip as Chip
from .costs import Machine as Machine
from .costs import collective_seconds as collective_seconds
from .costs import cost as cost
from .costs import timeline as timeline
from .judge import Report as Report
from .judge import compare as compare
from .layouts import layout as layout
from .notation.read import sharding as sharding
from .page import explore as explore
from .page import open as open
from .plan.plan import Plan as Plan
from .runs import dry_run as dry_run
from .runs import reshard as reshard
from .runs import together as together
from .stablehlo.resharding import moves as moves
from .study import cost_table as cost_table
from .study import fixes as fixes
from .study import lessons as lessons
from .study import search as search
from .study import sweep as sweep
from .tracing.meshes import mesh as mesh
from .tracing.rules import Rules as Rules
from .view.rosetta import rosetta as rosetta
from .view.show import show as show

__version__: str
