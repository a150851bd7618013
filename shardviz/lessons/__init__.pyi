from .asked import guess as guess
from .asked import progress as progress
from .asked import scores as scores
from .exercises import exercise as exercise
from .puzzles import puzzle as puzzle
from .written import write as write
