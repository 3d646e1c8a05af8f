"""The scripts here import each other by plain name, as they do when a peer's environment runs them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
