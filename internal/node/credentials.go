// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// The well-known default keys of the administrator, which many examples use.
const (
	defaultUser     = "minioadmin"
	defaultPassword = "minioadmin"
)

// credentials are the keys of the administrator.
type credentials struct {
	access, secret string
	wellKnown      bool   // whether the keys are the default keys
	file           string // file with the generated keys; empty if the keys are configured
	made           bool   // whether this start generated the keys
}

// rootCredentials returns the administrator's keys. It refuses the well-known default keys if other machines can
// reach the S3 address, unless allow_default_credentials is true.
func rootCredentials(c *config.Config) (credentials, error) {
	k := credentials{access: c.RootUser, secret: c.RootPassword}
	if k.access == "" && c.GenerateRootKeys {
		k.file = filepath.Join(c.Data, rootFile)
		return k, nil // keep reads the keys when the store is open
	}
	if k.access == "" {
		k.access, k.secret = defaultUser, defaultPassword
	}
	k.wellKnown = k.secret == defaultPassword
	if k.wellKnown && !c.AllowDefaultCredentials && !loopback(c.Address) {
		return k, errs.New(errs.Invalid, "start the server on", c.Address,
			fmt.Sprintf("the administrator's keys are the well-known %s and %s, and this address can be reached from other "+
				"machines", defaultUser, defaultPassword)).
			WithFix("set NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD, set generate_root_keys, or listen on 127.0.0.1")
	}
	return k, nil
}

// generatedUser is the access key of generated keys. It is constant, so that the administrator keeps its buckets if
// a new secret key is generated.
const generatedUser = "nebulaio-root"

// rootFile is the file in the data directory with the administrator's generated keys, as shell variables.
const rootFile = "root.env"

// keep reads the generated keys from their file, or generates them if there is no file. Configured keys stay as
// they are.
func (k credentials) keep() (credentials, error) {
	if k.file == "" {
		return k, nil
	}
	const op, fix = "read the administrator's keys", "restore the file, or remove it: the next start makes new keys"
	const away = "move it away: the next start makes new keys; nothing was changed"
	info, err := os.Stat(k.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.access, k.secret, k.made = generatedUser, iam.NewSecret(), true
		text := "# Keys of the administrator, made at the first start (generate_root_keys).\n" +
			config.RootUserVariable + "=" + k.access + "\n" + config.RootPasswordVariable + "=" + k.secret + "\n"
		if err := writeWhole(k.file, []byte(text)); err != nil {
			return k, &errs.Error{Kind: errs.KindOf(err), Op: "keep the administrator's new keys in", Name: k.file, Err: err,
				Fix: "make the data directory writable, or set NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD"}
		}
		return k, nil
	case err != nil:
		return k, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: k.file, Err: err, Fix: away}
	case !info.Mode().IsRegular():
		return k, errs.New(errs.Invalid, op, k.file, fmt.Sprintf("it is no file (mode %v)", info.Mode())).WithFix(away)
	case info.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(k.file, 0o600); err != nil {
			return k, &errs.Error{Kind: errs.KindOf(err), Op: "close the administrator's keys to other users", Name: k.file,
				Err: err,
				Fix: "as the owner of the file, run chmod 600 " + k.file}
		}
	}
	if k.access, k.secret, err = config.RootKeysIn(k.file); err != nil {
		return k, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: k.file, Err: err, Fix: fix}
	}
	return k, nil
}

// loopback reports whether only this machine can reach an address. A host name other than localhost counts as
// reachable from other machines.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if i := strings.IndexByte(host, '%'); i >= 0 {
		host = host[:i]
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
