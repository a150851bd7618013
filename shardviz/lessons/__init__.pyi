from .exercises import exercise as exercise
from .puzzles import puzzle as puzzle
from .questions import guess as guess
from .questions import progress as progress
from .questions import scores as scores
from .written import write as write
