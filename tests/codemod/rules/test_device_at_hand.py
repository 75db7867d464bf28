"""AM120, AM110: in modules of layers and in helpers, the device is that of a tensor at hand."""

from __future__ import annotations

from support.migration import IMPORTS, TRAINED, check_migrated

OBJECTS = """
    +accelerator = Accelerator()
     model = Net()
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""


def test_a_tensor_made_in_forward_follows_its_input() -> None:
    check_migrated(
        IMPORTS,
        """
         class Net(nn.Module):
             def __init__(self):
                 super().__init__()
                 self.score = nn.Linear(8, 3)

             def forward(self, x):
        -        bias = torch.zeros(x.size(0), 3).cuda()
        -        noise = torch.randn(x.size(0), 3).cuda()
        -        scale = torch.ones(3, device="cuda")
        +        bias = torch.zeros(x.size(0), 3, device=x.device)
        +        noise = torch.randn(x.size(0), 3).to(x.device)
        +        scale = torch.ones(3, device=x.device)
                 return self.score(x) * scale + bias + noise
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_tensor_made_of_a_size_follows_the_tensor_of_that_size() -> None:
    check_migrated(
        IMPORTS,
        """
         class Net(nn.Module):
             def __init__(self):
                 super().__init__()
                 self.score = nn.Linear(8, 3)

             def forward(self, x, labels=None):
                 scores = self.score(x)
                 if labels is None:
        -            labels = torch.zeros(scores.shape[0], dtype=torch.long).cuda()
        +            labels = torch.zeros(scores.shape[0], dtype=torch.long, device=scores.device)
                 return scores
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_method_without_a_tensor_asks_the_parameters() -> None:
    check_migrated(
        IMPORTS,
        """
         class Net(nn.Module):
             def __init__(self):
                 super().__init__()
                 self.score = nn.Linear(8, 3)

             def start(self):
        -        return torch.zeros(1, 8).cuda()
        +        return torch.zeros(1, 8, device=next(self.parameters()).device)

             def forward(self, x):
                 return self.score(x + self.start())
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_flag_of_the_model_that_guards_moves_only() -> None:
    check_migrated(
        IMPORTS,
        """
         class Net(nn.Module):
             def __init__(self):
                 super().__init__()
                 self.score = nn.Linear(8, 3)

             def forward(self, x):
                 h = torch.randn(x.size(0), 8)
        -        if torch.cuda.is_available():
        -            h = h.cuda()
        +        h = h.to(x.device)
                 return self.score(x + h)
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_loss_follows_the_other_argument() -> None:
    check_migrated(
        IMPORTS,
        """
         class Loss(nn.Module):
             def forward(self, scores, labels):
        -        weight = torch.tensor([1.0, 2.0, 3.0]).cuda()
        +        weight = torch.tensor([1.0, 2.0, 3.0], device=scores.device)
                 return F.cross_entropy(scores, labels, weight)


         def Net():
             return nn.Linear(8, 3)
        """,
        OBJECTS,
        """
         criterion = Loss()
         for x, y in loader:
             optimizer.zero_grad()
             loss = criterion(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_helper_follows_what_it_is_given() -> None:
    check_migrated(
        IMPORTS,
        """
         def Net():
             return nn.Linear(8, 3)


         def smoothed(scores):
        -    return scores + torch.full((3,), 0.1).cuda()
        +    return scores + torch.full((3,), 0.1, device=scores.device)
        """,
        OBJECTS,
        """
         for x, y in loader:
             optimizer.zero_grad()
             loss = F.cross_entropy(smoothed(model(x)), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_helper_that_nothing_calls_follows_what_it_uses_as_a_tensor() -> None:
    check_migrated(
        IMPORTS,
        """
         def Net():
             return nn.Linear(8, 3)


         def mask(lengths, n):
        -    ids = torch.arange(0, n, out=torch.cuda.LongTensor(n))
        +    ids = torch.arange(0, n, out=torch.empty(n, dtype=torch.long, device=lengths.device))
             return ids < lengths.unsqueeze(1)


         def main():
        +    accelerator = Accelerator()
             model = Net()
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
             for x, y in loader:
                 optimizer.zero_grad()
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()


         main()
        """,
    )
