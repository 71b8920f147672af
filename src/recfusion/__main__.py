"""`python -m recfusion` is the command line."""

from recfusion.cli.main import main

main()
