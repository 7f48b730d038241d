// The shopping cart of a web shop.

class Cart {
  constructor(currency) {
    this.currency = currency;
    this.lines = [];
  }

  add(product, count) {
    this.lines.push({ product, count });
  }

  remove(product) {
    this.lines = this.lines.filter((line) => line.product !== product);
  }

  total() {
    let sum = 0;
    for (const line of this.lines) {
      sum += line.product.price * line.count;
    }
    return sum;
  }

  isEmpty() {
    return this.lines.length === 0;
  }
}

function format(cart) {
  return `${cart.total().toFixed(2)} ${cart.currency}`;
}

module.exports = { Cart, format };
