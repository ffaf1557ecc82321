"""Options that several commands have, said once."""

from typing import Annotated

import typer

Weights = Annotated[
    str | None, typer.Option(help="Weights for package.module:function: .safetensors or .pth.")
]
Mean = Annotated[
    str | None, typer.Option(help="Of pixels in [0, 1], with commas, where --model has none.")
]
Std = Annotated[str | None, typer.Option(help="Likewise.")]
