"""The public names of the room, as a reader of the README meets them."""

import subprocess
import sys


def test_every_name_is_there_after_importing_recfusion_alone_which_does_not_import_torch() -> None:
    code = "import sys, recfusion as rf; early = 'torch' in sys.modules; names = rf.diffusion.__all__; "
    code += "print(early, len(names) == len(set(names)), [name for name in names if not hasattr(rf.diffusion, name)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True []\n"
