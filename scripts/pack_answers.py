"""Pack the tokens of recorded answers into one small file: pack_answers.py RUN/answers FILE.safetensors"""

from __future__ import annotations

import sys
from pathlib import Path

from draftproof.errors import DraftproofError
from draftproof.train.tokens import pack

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        print(f"{pack(Path(sys.argv[1]), Path(sys.argv[2]))} answers in {sys.argv[2]}")
    except DraftproofError as error:
        sys.exit(f"error: {error}")
