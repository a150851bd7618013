from .exercises import exercise as exercise
from .exercises import scores as scores
from .puzzles import puzzle as puzzle
from .written import write as write
