"""`recfusion spark`."""

import typer

app = typer.Typer(no_args_is_help=True, help="Prepare data and recommend on a Spark cluster.")


@app.callback()
def about() -> None:
    """Prepare data and recommend on a Spark cluster."""
