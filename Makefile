# Each target sets up what it needs: `make quickstart`, `make test`, `make docs`, `make wheel`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --disable-pip-version-check --quiet -c constraints.txt

.PHONY: quickstart test format docs wheel clean

quickstart: $(VENV)/.installed
	$(BIN)/fieldwise run settings/quickstart.toml --out runs/quickstart

test: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-docs
	$(BIN)/python scripts/reference.py docs/reference
	$(BIN)/zensical build --clean --strict
	@echo "Documentation: site/index.html"

wheel: | $(BIN)/python
	$(PIP) hatchling
	$(BIN)/hatchling build -d dist

clean:
	rm -rf $(VENV) runs/quickstart site docs/reference dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/.installed $(VENV)/.installed-docs

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[docs]"
	touch $@ $(VENV)/.installed
