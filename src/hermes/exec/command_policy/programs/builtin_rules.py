"""The built-in rules: programs that only read, programs for everyday work, sensitive ones."""

from __future__ import annotations

from functools import cache

from hermes.exec.command_policy.rules import check_examples, index_by_program
from hermes.exec.command_policy.types import CommandRule


def _any_of(words: str) -> tuple[str, ...]:
    return tuple(words.split())


def _allow_rule(
    prefix: tuple[str | tuple[str, ...], ...],
    match: tuple[str, ...] = (),
    miss: tuple[str, ...] = (),
) -> CommandRule:
    return CommandRule("allow", prefix, match=match, miss=miss)


READ_RULES: tuple[CommandRule, ...] = (
    _allow_rule(
        (
            _any_of(
                "ls cat head tail wc grep egrep fgrep zgrep rg ag ack find fd fdfind tree pwd echo "
                "printf true false : test [ sleep date cal uname whoami id groups hostname uptime "
                "df du free ps pgrep which whereis type file stat readlink realpath basename "
                "dirname diff cmp comm sort uniq cut tr rev nl fold fmt column paste join tac od "
                "xxd hexdump strings md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum "
                "cksum sum jq yq seq expr bc dc env printenv locale nproc lscpu lsblk lsof getconf "
                "arch tty zcat bzcat xzcat zstdcat less more man help sed awk gawk mawk nawk "
                "expand unexpand pr tsort numfmt factor shuf look iconv base64 base32 "
                "basenc bat batcat exa eza delta tokei scc vmstat top iostat pstree w who "
                "last lsmod lspci lsusb dmesg ss netstat ip ifconfig tput clear nm objdump readelf "
                "addr2line c++filt otool pdfinfo "
                "cd pushd popd dirs read set unset export declare local typeset readonly "
                "shift return exit break continue wait let getopts hash umask ulimit jobs fg bg "
                "disown mapfile readarray times shopt command zipinfo csvlook "
                "journalctl hexyl pygmentize ts gdate gsed ghead gtail gstat"
            ),
        ),
        match=("ls -la", "cat a.txt", "rg -n foo src"),
        miss=("rm a", "lsx"),
    ),
    _allow_rule(
        (
            "git",
            _any_of(
                "status log diff show blame annotate ls-files ls-tree rev-parse describe shortlog "
                "grep cat-file rev-list name-rev merge-base reflog whatchanged count-objects "
                "for-each-ref show-ref show-branch check-ignore check-attr var version help "
                "--version --help diff-tree diff-index diff-files range-diff cherry verify-commit "
                "verify-tag fsck get-tar-commit-id merge-tree"
            ),
        ),
        match=("git status --short", "git log -3"),
        miss=("git push", "git -c x=y status", "git"),
    ),
    _allow_rule(("git", ("branch", "tag", "stash"), ("-v", "-vv", "-a", "--list", "-l", "list",
        "--all", "-r", "show", "--show-current", "--contains", "--merged", "--no-merged")),
        match=("git branch -a",), miss=("git branch x",)),
    _allow_rule(("git", "remote", ("-v", "get-url")), match=("git remote -v",),
        miss=("git remote show http://host/x",)),
    _allow_rule(("git", "config", ("--get", "--list", "-l", "--get-all", "--get-regexp", "list",
        "get")), match=("git config --list",), miss=("git config a b",)),
    _allow_rule(("npm", _any_of("ls list why root bin --version -v help explain")),
        match=("npm ls",), miss=("npm publish", "npm view x")),
    _allow_rule((_any_of("pip pip3"), _any_of("list show freeze check --version -V help debug "
        "inspect")), match=("pip list",), miss=("pip install x", "pip index versions x")),
    _allow_rule(("dpkg", ("-l", "-L", "-s", "--list", "-S")), match=("dpkg -l",)),
    _allow_rule((("apt", "apt-cache"), ("list", "show", "search", "policy", "depends")),
        match=("apt list",), miss=("apt install x",)),
    _allow_rule(("brew", ("list", "--version", "--prefix", "config", "deps")),
        match=("brew list",), miss=("brew install x", "brew search x")),
    _allow_rule((("tar",), ("tf", "-tf", "tvf", "-tvf", "tzf", "-tzf", "tjf", "--list", "-tzvf",
        "tzvf")), match=("tar tf a.tar",), miss=("tar xf a.tar",)),
    _allow_rule(("unzip", ("-l", "-v", "-t", "-p", "-Z")), match=("unzip -l a.zip",)),
)  # fmt: skip
"""Allowed everywhere: they change nothing and send nothing."""

WORK_RULES: tuple[CommandRule, ...] = (
    _allow_rule(
        (
            _any_of(
                "git-lfs touch mkdir rmdir cp mv ln rm chmod install tee truncate split csplit "
                "ffprobe mediainfo xmllint glow "
                "patch sponge dos2unix unix2dos ldd exiftool tldr logger identify pdftotext "
                "cloc nvidia-smi tar unzip zip gzip gunzip bzip2 "
                "bunzip2 xz unxz zstd unzstd 7z 7za rar "
                "unrar mktemp mkfifo unlink dd rename kill pkill killall timeout "
                "python python2 python3 pypy pypy3 ipython pytest py.test tox nox coverage mypy "
                "pyright basedpyright pyrefly ty ruff black isort flake8 pylint bandit pyflakes "
                "autopep8 yapf pycodestyle pydocstyle vulture pyupgrade pre-commit pip-compile "
                "pip-sync pip-audit virtualenv lint-imports sphinx-build mkdocs cython "
                "maturin py-spy scalene "
                "uvicorn gunicorn flask django-admin alembic celery jupyter nbconvert jupytext "
                "streamlit dbt pdm hatch rye pipx uvx interrogate refurb deptry fixit "
                "node nodejs deno bun tsc ts-node tsx esbuild vite vitest jest mocha ava webpack "
                "rollup parcel eslint prettier stylelint babel next nuxt astro svelte-kit "
                "storybook playwright cypress turbo nx lerna npx pnpx bunx corepack nodemon "
                "tailwindcss postcss sass lessc biome oxlint swc ng vue svelte-check gulp grunt "
                "rustc rustfmt cargo-clippy clippy-driver wasm-pack trunk "
                "gofmt goimports golangci-lint staticcheck gopls air dlv ginkgo gotestsum buf "
                "protoc sqlc templ mockgen wire "
                "gcc g++ cc c++ clang clang++ ld ar as ranlib strip objcopy cmake ctest cpack "
                "make gmake ninja meson bazel bazelisk buck2 scons autoconf automake autoreconf "
                "libtool pkg-config configure ccache clang-format clang-tidy cppcheck "
                "gcov lcov swig flex bison nasm qmake conan vcpkg "
                "java javac jar mvn mvnw gradle gradlew kotlinc kotlin scala scalac sbt ant lein "
                "clj clojure javadoc jshell ktlint "
                "ruby gem bundle rake rails rspec rubocop erb irb jekyll sorbet "
                "php composer phpunit phpstan php-cs-fixer pest artisan psalm "
                "dotnet msbuild csc nuget swift swiftc xcodebuild swiftlint swiftformat "
                "elixir mix iex erl rebar3 ghc cabal stack runghc hlint ocaml dune opam "
                "julia Rscript R lua luac luarocks luacheck stylua zig nim crystal dart flutter "
                "perl prove cpanm tclsh racket guile sbcl gleam v odin "
                "just task invoke fab mise asdf direnv devbox "
                "shellcheck shfmt hadolint yamllint markdownlint markdownlint-cli2 vale codespell "
                "typos actionlint checkov jsonlint taplo tflint ansible-lint cspell lychee "
                "terraform-docs semgrep gitleaks "
                "pandoc pdflatex xelatex lualatex latexmk bibtex biber typst asciidoctor plantuml "
                "dot convert magick mogrify ffmpeg sox inkscape rsvg-convert optipng pngquant "
                "cwebp gifsicle qpdf pdfunite ghostscript gs wkhtmltopdf "
                "sqlite3 duckdb csvkit csvcut csvgrep csvstat csvsort mlr xsv qsv "
                "ctags etags cscope tree-sitter ast-grep comby jscodeshift sd fzf "
                "hyperfine watchexec wrk "
                "curl wget http https xh aria2c "
                "bash sh zsh dash ksh fish source . eval trap xargs alias"
            ),
        ),
        match=("pytest -q", "make test", "mkdir -p a/b"),
        miss=("ssh host", "docker run x"),
    ),
    _allow_rule(
        (
            "git",
            _any_of(
                "add commit checkout switch restore stash merge rebase cherry-pick tag branch "
                "reset rm mv init apply am format-patch worktree bisect revert notes fetch pull "
                "clone submodule mergetool sparse-checkout lfs archive bundle gc prune "
                "ls-remote update-index update-ref symbolic-ref hash-object write-tree commit-tree "
                "read-tree mktree request-pull rerere stripspace interpret-trailers "
                "fmt-merge-msg remote clean config"
            ),
        ),
        match=("git add .", "git commit -m x"),
        miss=("git push origin main", "git send-email", "git daemon"),
    ),
    _allow_rule((_any_of("npm pnpm yarn"), _any_of("ls list view info why outdated root bin "
        "ping search fund audit install i ci add remove rm uninstall un update "
        "up upgrade run run-script test t tst start stop restart build dev lint exec init create "
        "rebuild dedupe prune pack version link unlink typecheck format check dlx workspace "
        "workspaces cache import patch why set-script serve watch coverage e2e clean storybook "
        "preview generate")), match=("npm test", "npm run build"), miss=("npm publish",)),
    _allow_rule((("yarn", "pnpm"), ("--version", "-v", "--frozen-lockfile", "--immutable")),
        match=("yarn --frozen-lockfile",)),
    _allow_rule((_any_of("pip pip3"), _any_of("install uninstall download wheel cache hash index")),
        match=("pip install -e .",), miss=("pip config set a b",)),
    _allow_rule(("brew", ("info", "search")), match=("brew info x",), miss=("brew install x",)),
    _allow_rule(("sg", _any_of("run scan test new")), match=("sg scan",), miss=("sg root",)),
    _allow_rule(("uv", _any_of("tree version pip sync lock add remove venv init build run tool "
        "python cache "
        "export self")), match=("uv sync",), miss=("uv publish",)),
    _allow_rule(("poetry", _any_of("show search version install add remove update lock build "
        "run shell check new init "
        "env export self")), match=("poetry install",), miss=("poetry publish",)),
    _allow_rule(("pipenv", _any_of("install uninstall lock sync update run graph check")),
        match=("pipenv install",)),
    _allow_rule((_any_of("conda mamba micromamba"), _any_of("create install env list info run "
        "update remove activate deactivate search")), match=("conda list",)),
    _allow_rule(("cargo", _any_of("version metadata tree search pkgid locate-project build b "
        "check c test t run r bench clippy fmt clean new init "
        "add remove rm update fix fetch generate-lockfile vendor package nextest doc install "
        "expand llvm-cov tarpaulin audit deny outdated machete watch miri insta sqlx hack udeps "
        "semver-checks")), match=("cargo build --release",), miss=("cargo publish", "cargo login")),
    _allow_rule(("rustup", _any_of("doc which show component target toolchain update default "
        "override run")),
        match=("rustup show",)),
    _allow_rule(("go", _any_of("version env help build test run vet fmt mod get install "
        "generate clean tool work "
        "fix bug doc list")), match=("go test ./...",)),
    _allow_rule(("gh", _any_of("pr issue run repo release workflow search"), _any_of("view list "
        "status diff checks watch")), match=("gh pr view 12",), miss=("gh pr create", "gh api x")),
    _allow_rule(("docker", _any_of("ps images version info logs inspect stats top port")),
        match=("docker ps",), miss=("docker run x",)),
    _allow_rule((("docker", "docker-compose"), _any_of("compose ps logs images top config"),
        _any_of("ps ls logs config images top version")), match=("docker compose ps",),
        miss=("docker compose up", "docker compose exec x sh")),
    _allow_rule(("terraform", _any_of("fmt validate version providers init plan graph show")),
        match=("terraform fmt",), miss=("terraform apply",)),
    _allow_rule(("helm", _any_of("lint template version")), match=("helm lint .",)),
)  # fmt: skip
"""Allowed in a sandbox, which keeps their changes inside the workspace."""

VERSION_ASKABLE = frozenset(
    "python python2 python3 pypy3 node go cargo rustc gcc g++ cc clang clang++ java javac ruby php "
    "perl lua dotnet git npm pip pip3 uv make cmake ninja docker tar curl wget ffmpeg sqlite3 zig "
    "ghc swift julia deno bun R Rscript rustup openssl bash zsh".split()
)
"""With --version they read no file of the workspace, as many others do."""

NETWORK_PROGRAMS = frozenset(
    "curl wget http https xh aria2c ssh scp sftp ftp lftp nc ncat netcat socat telnet rsync rclone "
    "openssl nmap dig nslookup host whois ping traceroute tcpdump mail mailx sendmail mutt "
    "smbclient gsutil aws gcloud az s3cmd mc croc ngrok cloudflared tor torsocks websocat "
    "grpcurl".split()
)
"""They connect to other machines, so answers about them are not remembered."""

SENSITIVE_PROGRAMS = frozenset(
    "docker podman nerdctl kubectl helm systemctl service launchctl crontab at batch mount umount "
    "apt apt-get dpkg yum dnf pacman apk brew snap flatpak rpm useradd userdel usermod groupadd "
    "passwd chpasswd visudo iptables nft ufw sysctl modprobe insmod rmmod losetup mknod setcap "
    "hermes gdb lldb tmux screen expect osascript security defaults".split()
)

READ_ONLY_SUBCOMMANDS = frozenset(
    "get describe logs ps status list ls show images inspect top diff history search info".split()
)
"""Subcommands of sensitive programs that only read: answers about them are remembered."""

WITH_SUBCOMMAND = frozenset(
    "git npm pnpm yarn cargo go pip pip3 uv poetry pipenv conda mamba docker podman kubectl helm "
    "terraform tofu gh glab aws gcloud az heroku vercel netlify fly flyctl wrangler firebase "
    "supabase systemctl brew apt apt-get dnf yum pacman apk snap rustup dotnet bundle gem composer "
    "mix dart flutter rails npx make just task ansible vagrant nix pulumi cdk sam serverless "
    "service launchctl dpkg rpm flatpak".split()
)
"""Their second word is a subcommand, and part of the prefix that is remembered."""
WITH_TWO_SUBCOMMANDS = frozenset("gh aws gcloud az docker podman nix".split())

KNOWN_PACKAGES = frozenset(
    "shadcn shadcn-ui prisma drizzle-kit husky lint-staged serve http-server rimraf concurrently "
    "cross-env npm-check-updates depcheck knip madge tsup changeset @changesets/cli @angular/cli "
    "@vue/cli @nestjs/cli @biomejs/biome @playwright/test @tailwindcss/cli @svelte-kit/package "
    "expo react-native degit sv c8 nyc size-limit license-checker markdownlint-cli "
    "yarn-deduplicate npm-run-all npm-run-all2 sort-package-json syncpack commitlint "
    "@commitlint/cli semantic-release standard xo ts-prune type-coverage api-extractor "
    "typedoc jsdoc openapi-typescript graphql-codegen @graphql-codegen/cli json-server wait-on "
    "cowsay esno browserslist update-browserslist-db svgo live-server "
    "cookiecutter copier httpie yt-dlp pycowsay check-jsonschema djlint sqlfluff pyproject-fmt "
    "validate-pyproject zizmor pip-tools nbstripout pdoc build".split()
)
"""Well-known development tools that npx, uvx and the like may download and run."""


@cache
def index_builtin_rules() -> tuple[dict[str, list[CommandRule]], dict[str, list[CommandRule]]]:
    """The rules that apply everywhere and those that apply in a sandbox, by program."""
    for rule in (*READ_RULES, *WORK_RULES):
        check_examples(rule)
    return index_by_program(READ_RULES), index_by_program(WORK_RULES)


@cache
def known_programs() -> frozenset[str]:
    """The programs that built-in rules exist for."""
    return frozenset(name for index in index_builtin_rules() for name in index)
