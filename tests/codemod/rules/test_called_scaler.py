"""AM325: what a scaler object of timm does when it is called is spelled out where it was called."""

from __future__ import annotations

from support.migration import IMPORTS, check_migrated


def test_backward_clipping_and_step_are_spelled_out() -> None:
    check_migrated(
        IMPORTS,
        """
        -from timm.utils import NativeScaler
         import flags

        -scaler = NativeScaler()
        -model = nn.Linear(8, 3).cuda()
        +accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             optimizer.zero_grad()
        -    with torch.cuda.amp.autocast():
        -        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        -    scaler(loss, optimizer, clip_grad=flags.clip, parameters=model.parameters(), create_graph=flags.second)
        +    with accelerator.autocast():
        +        loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss, create_graph=flags.second)
        +    if flags.clip is not None:
        +        accelerator.clip_grad_norm_(model.parameters(), flags.clip)
        +    optimizer.step()
        """,
    )
