"""AM330: apex's amp is the accelerator's mixed precision."""

from __future__ import annotations

import pytest

from support.migration import IMPORTS, check_migrated, check_refused, sketch

SETUP = """
    -model = nn.Linear(8, 3).cuda()
    +accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")
    +model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    -model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    !AM330 review: opt_level O1 chose a type for each function
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
     for x, y in loader:
         optimizer.zero_grad()
    -    loss = F.cross_entropy(model(x.cuda()), y.cuda())
    +    loss = F.cross_entropy(model(x), y)
"""


def test_initialize_and_scale_loss_go() -> None:
    check_migrated(
        IMPORTS,
        "-from apex import amp",
        SETUP,
        """
        -    with amp.scale_loss(loss, optimizer) as scaled_loss:
        -        scaled_loss.backward(create_graph=True)
        -    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        +    accelerator.backward(loss, create_graph=True)
        +    accelerator.clip_grad_norm_(model.parameters(), 1.0)
             optimizer.step()
        """,
    )


def test_under_a_flag_with_an_optional_import() -> None:
    check_migrated(
        IMPORTS,
        """
         import flags
        -try:
        -    from apex import amp
        -except ImportError:
        -    raise ImportError("this needs apex")

        -model = nn.Linear(8, 3).cuda()
        +accelerator = Accelerator(mixed_precision="fp16" if flags.fp16 and torch.cuda.is_available() else "no")
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        -if flags.fp16:
        -    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        !    AM330 review: opt_level O2 kept the model in half precision
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             optimizer.zero_grad()
        -    loss = F.cross_entropy(model(x.cuda()), y.cuda())
        -    if flags.fp16:
        -        with amp.scale_loss(loss, optimizer) as scaled_loss:
        -            scaled_loss.backward()
        -    else:
        -        loss.backward()
        +    loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


@pytest.mark.parametrize("use", ["state = amp.state_dict()", "amp.register_half_function(F, 'gelu')"])
def test_the_rest_of_apex_is_refused(use: str) -> None:
    check_refused(
        sketch(IMPORTS, " from apex import amp", SETUP).before,
        f" {use}\n!AM900 refused: this script uses apex, which this version does not migrate",
        " loss.backward()\n optimizer.step()",
    )
