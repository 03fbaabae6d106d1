"""What people keep secret in a home: one file of each kind."""

from __future__ import annotations

from pathlib import Path

CANARY = "canary-5d0c7be2"
KINDS = """
.ssh/id_rsa
.ssh/id_ed25519
.ssh/config
.aws/credentials
.aws/sso/cache/token.json
.azure/msal_token_cache.json
.config/gcloud/application_default_credentials.json
.config/gcloud/legacy_credentials/a/adc.json
.kube/config
.docker/config.json
.gnupg/private-keys-v1.d/a.key
.password-store/mail.gpg
.netrc
.pgpass
.pypirc
.git-credentials
.config/git/credentials
.gitconfig
.config/gh/hosts.yml
.config/hub
.config/glab-cli/config.yml
.config/tea/config.yml
.npmrc
.yarnrc.yml
.cargo/credentials
.cargo/credentials.toml
.m2/settings.xml
.m2/settings-security.xml
.gradle/gradle.properties
.gem/credentials
.local/share/gem/credentials
.bundle/config
.composer/auth.json
.config/composer/auth.json
.config/pypoetry/auth.toml
.condarc
.config/pip/pip.conf
.pip/pip.conf
.config/uv/uv.toml
.local/share/uv/credentials/credentials.toml
.nuget/NuGet/NuGet.Config
.sbt/.credentials
.ivy2/.credentials
.terraform.d/credentials.tfrc.json
.terraformrc
.vault-token
.config/rclone/rclone.conf
.boto
.s3cfg
.mc/config.json
.passwd-s3fs
.my.cnf
.mylogin.cnf
.config/doctl/config.yaml
.config/heroku/token
.fly/config.yml
.config/hcloud/cli.toml
.config/sops/age/keys.txt
.config/age/keys.txt
.config/containers/auth.json
.wrangler/config/default.toml
.config/.wrangler/config/default.toml
.config/netlify/config.json
.local/share/com.vercel.cli/auth.json
.config/configstore/firebase-tools.json
.config/github-copilot/hosts.json
.claude/.credentials.json
.claude.json
.codex/auth.json
.gemini/oauth_creds.json
.local/share/opencode/auth.json
.config/io.datasette.llm/keys.json
.continue/config.json
.aider.conf.yml
.config/openai/key
.huggingface/token
.cache/huggingface/token
.cache/huggingface/stored_tokens
.kaggle/kaggle.json
.databrickscfg
.snowflake/connections.toml
.snowsql/config
.dbt/profiles.yml
.oci/config
.aliyun/config.json
.bluemix/config.json
.config/linode-cli
.config/scw/config.yaml
.config/ngrok/ngrok.yml
.ngrok2/ngrok.yml
.cloudflared/cert.pem
.config/rbw/config.json
.config/Bitwarden/data.json
.config/1Password/settings.json
.authinfo
.authinfo.gpg
.msmtprc
.mbsyncrc
.muttrc
.config/aerc/accounts.conf
.fetchmailrc
.offlineimaprc
.vault_pass
.chef/client.pem
.minikube/profiles/client.key
.pulumi/credentials.json
.config/stripe/config.toml
.config/helm/registry/config.json
.config/argocd/config
.rancher/cli2.json
.cf/config.json
.doppler/.doppler.yaml
.infisical/keyring
.sentryclirc
.subversion/auth/svn.simple/a
.cvspass
.smbcredentials
.davfs2/secrets
.config/borg/keys/repo
.config/filezilla/sitemanager.xml
.local/share/remmina/a.remmina
.pki/nssdb/pkcs11.txt
.step/secrets/key
.acme.sh/account.key
.lego/accounts/a.key
.local/share/mkcert/rootCA-key.pem
.config/syncthing/key.pem
.local/state/syncthing/key.pem
.local/share/atuin/key
.local/share/keyrings/login.keyring
.local/share/kwalletd/kdewallet.kwl
.mozilla/firefox/a.default/logins.json
.thunderbird/a.default/logins.json
.config/google-chrome/Default/Login Data
.config/chromium/Default/Cookies
.config/BraveSoftware/Brave-Browser/Default/Cookies
.config/microsoft-edge/Default/Cookies
.config/vivaldi/Default/Cookies
.config/opera/Cookies
.config/Signal/sql/db.sqlite
.config/discord/Local Storage/a
.config/Slack/Cookies
.local/share/TelegramDesktop/tdata/key_datas
.electrum/wallets/default_wallet
.bitcoin/wallet.dat
.ethereum/keystore/UTC--a
.bash_history
.zsh_history
.python_history
.psql_history
.mysql_history
.node_repl_history
.local/share/fish/fish_history
.Xauthority
.hermes/.env
.hermes/auth.json
""".strip().splitlines()
"""Collected from the manuals of the programs that write them, not from the rules under test."""


def fill_home(home: Path) -> list[Path]:
    """Put a file of every kind into a home; the files look like pictures, too."""
    files = [home / name for name in KINDS]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"GIF89a\nword {CANARY}\n")
    return files
