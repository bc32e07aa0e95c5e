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

// The pair that examples of this field use. Everybody knows it.
const (
	defaultUser     = "minioadmin"
	defaultPassword = "minioadmin"
)

// credentials are the administrator's.
type credentials struct {
	access, secret string
	wellKnown      bool   // the default pair
	file           string // where the store keeps its own pair; empty: the pair is not the store's
	made           bool   // by this start
}

// rootCredentials gives the administrator's keys. The well-known pair, whether
// it was set or nothing was, is refused where others than this machine can
// reach the server, unless that is allowed in so many words.
func rootCredentials(c *config.Config) (credentials, error) {
	k := credentials{access: c.RootUser, secret: c.RootPassword}
	if k.access == "" && c.GenerateRootKeys {
		k.file = filepath.Join(c.Data, rootFile)
		return k, nil // the keys come when the store is open
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

// generatedUser is the access key beside a generated secret. It is always the same, so that what it owns stays its own
// where the secret has to be made anew.
const generatedUser = "nebulaio-root"

// rootFile is the file in the data directory with the administrator's keys that were generated, as variables of a
// shell.
const rootFile = "root.env"

// keep reads the keys that the store keeps, or makes them where there are none yet. Other credentials stay as they are.
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

// loopback says whether an address can be reached from this machine alone. A
// name other than localhost may be anything and counts as reachable.
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
