"""AM105: settings that code run by `exec` may change."""

from __future__ import annotations

from support.migration import IMPORTS, check_migrated

SETTINGS = """
     device = "cuda"
     batch_size = 32
     exec(open("configurator.py").read())  # --device=cpu
    ! AM105 review: taken to change settings only (`batch_size`, `device`)
"""


def test_the_device_stays_a_setting_that_the_accelerator_heeds() -> None:
    check_migrated(
        IMPORTS,
        SETTINGS,
        """
        +accelerator = Accelerator(cpu=device == "cpu")
         loader = DataLoader(data, batch_size=batch_size)
        -model = nn.Linear(8, 3).to(device)
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
        -    x = x.to(device) + torch.randn(8, device=device)
        -    F.cross_entropy(model(x), y.to(device)).backward()
        +    x = x + torch.randn(8, device=accelerator.device)
        +    accelerator.backward(F.cross_entropy(model(x), y))
             optimizer.step()
        """,
    )


def test_a_script_without_a_device_among_its_settings() -> None:
    check_migrated(
        IMPORTS,
        """
         rate = 0.1
         exec(open("configurator.py").read())
        ! AM105 review: (`rate`)
        +accelerator = Accelerator()
         loader = DataLoader(data, batch_size=32)
        -model = nn.Linear(8, 3).cuda()
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
        -    F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        +    accelerator.backward(F.cross_entropy(model(x), y))
             optimizer.step()
        """,
    )


def test_code_that_runs_in_a_namespace_of_its_own_changes_nothing_here() -> None:
    check_migrated(
        IMPORTS,
        """
         about = {}
         exec(open("version.py").read(), about)
        +accelerator = Accelerator()
         loader = DataLoader(data, batch_size=32)
        -model = nn.Linear(8, 3).cuda()
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
        -    F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        +    accelerator.backward(F.cross_entropy(model(x), y))
             optimizer.step()
        """,
    )
