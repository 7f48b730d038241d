"""A shop's inventory: items, stock, and what is missing."""

from dataclasses import dataclass, field


@dataclass
class Item:
    name: str
    price: float
    stock: int = 0


@dataclass
class Inventory:
    items: dict[str, Item] = field(default_factory=dict)

    def add(self, item: Item) -> None:
        self.items[item.name] = item

    def remove(self, name: str) -> None:
        del self.items[name]

    def total_value(self) -> float:
        total = 0.0
        for item in self.items.values():
            total += item.price * item.stock
        return total

    def missing(self) -> list[str]:
        names: list[str] = []
        for item in self.items.values():
            if item.stock == 0:
                names += [item.name]
        return names

    def restock(self, name: str, count: int) -> None:
        if count <= 0:
            raise ValueError("count must be positive")
        self.items[name].stock += count


def cheapest(inventory: Inventory) -> Item:
    return min(inventory.items.values(), key=lambda item: item.price)
