-- For `vim.lsp.enable('specter')` (Neovim 0.11 and later), with or without setup().
return require('specter.client').config()
