// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	door "github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// Validate returns an error if a server with this configuration cannot start on this machine. Run and the command
// nebulaio config both call Validate, so that they refuse the same configurations. Validate creates no directory
// and no certificate.
//
// Validate does not check whether another process uses a port or the store, because that is not an error of the
// configuration.
func Validate(ctx context.Context, c *config.Config) error {
	if _, err := rootCredentials(c); err != nil {
		return err
	}
	for _, a := range []struct{ key, address string }{{"address", c.Address}, {"console_address", c.ConsoleAddress}} {
		if err := assignable(ctx, a.key, a.address); err != nil {
			return err
		}
	}
	if err := usableData(c.Data); err != nil {
		return err
	}
	if err := readableCertificate(c); err != nil {
		return err
	}
	if err := usableMaster(ctx, c); err != nil {
		return err
	}
	if err := usableCluster(ctx, c); err != nil {
		return err
	}
	if err := auditTokens(c); err != nil {
		return err
	}
	if err := usableTargets(c); err != nil {
		return err
	}
	if _, err := temporaryKeys(c, nil); err != nil {
		return err
	}
	return usableDoor(c)
}

// privileged is the first port that every user may listen on, by the default of Linux.
const privileged = 1024

// assignable listens for a moment on the host of an address, with a free port. A privileged port is tried itself.
func assignable(ctx context.Context, key, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return errs.New(errs.Invalid, "listen on", address, "is no address; expected HOST:PORT").WithFix("set " + key)
	}
	try := "0"
	if n, err := strconv.Atoi(port); err == nil && n < privileged {
		try = port
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, try))
	if err == nil {
		return l.Close()
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return nil // another server uses the port, perhaps this one
	}
	fix := fmt.Sprintf("set %s to an address of this machine, such as 127.0.0.1:9000 or :9000", key)
	if errors.Is(err, fs.ErrPermission) {
		fix = fmt.Sprintf("set %s to a port of %d or more, or give the server CAP_NET_BIND_SERVICE", key, privileged)
	}
	return &errs.Error{Kind: errs.Invalid, Op: "listen on", Name: address, Err: cause(err), Fix: fix}
}

// cause returns a network error without its address, because the caller names the address.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

// usableData returns an error if the data directory is not a directory or cannot be created.
func usableData(dir string) error {
	const op, fix = "use the data directory", "set data to a directory of a disk that the server's user may write to"
	refuse := func(msg string, err error) error {
		kind := errs.Invalid
		if err != nil && errs.KindOf(err) != errs.Other {
			kind = errs.KindOf(err)
		}
		return &errs.Error{Kind: kind, Op: op, Name: dir, Msg: msg, Err: err, Fix: fix}
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return refuse("", err)
	}
	// In the nearest existing parent directory, the server must be able to create the next directory.
	there := path
	for {
		info, err := os.Stat(there)
		if err == nil && !info.IsDir() {
			return refuse(there+" is a file; expected a directory", nil)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) || filepath.Dir(there) == there {
			return refuse("", err)
		}
		there = filepath.Dir(there)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(there, &st); err == nil && (st.Type == unix.PROC_SUPER_MAGIC || st.Type == unix.SYSFS_MAGIC) {
		return refuse(there+" belongs to the kernel and holds no files of others", nil)
	}
	need := uint32(unix.R_OK | unix.X_OK) // an existing store can be served read-only
	if there != path {
		need = unix.W_OK | unix.X_OK
	}
	if err := unix.Faccessat(unix.AT_FDCWD, there, need, unix.AT_EACCESS); err != nil {
		return refuse("", &fs.PathError{Op: "use", Path: there, Err: err})
	}
	return nil
}

// readableCertificate returns an error if the server's certificate cannot be loaded. A certificate that is not
// generated yet is no error.
func readableCertificate(c *config.Config) error {
	if c.TLS.Generate {
		dir := filepath.Join(c.Data, "tls")
		_, err := usable(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), certificateHosts(c), time.Now())
		return err
	}
	_, err := loadCertificate(c, time.Now())
	return err
}

// usableDoor returns an error if the socket of the GPUDirect door cannot be created.
func usableDoor(c *config.Config) error {
	if !c.GPUDirect.Enabled {
		return nil
	}
	const op, fix = "open the GPUDirect socket", "make the directory, or set gpudirect.socket"
	path, err := doorPath(c)
	if err != nil {
		return err
	}
	if admin, err := filepath.Abs(filepath.Join(c.Data, adminSocket)); err == nil && filepath.Clean(path) == admin {
		return errs.New(errs.Invalid, op, path, "is the server's administration socket").WithFix(
			"set gpudirect.socket to another name")
	}
	if len(path) > door.MaxPath {
		return errs.New(errs.Invalid, op, path, fmt.Sprintf("the name has %d bytes, expected at most %d", len(path),
			door.MaxPath)).WithFix("set gpudirect.socket to a shorter one")
	}
	if n := len(c.GPUDirect.Devices()); n > wire.MaxDevices {
		return errs.New(errs.Invalid, "read configuration", "gpudirect.device_ids",
			fmt.Sprintf("has %d devices; expected %d at most", n, wire.MaxDevices))
	}
	if c.GPUDirect.Socket == "" {
		return nil // the server creates the data directory
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: err, Fix: fix}
	}
	if !info.IsDir() {
		return errs.New(errs.Invalid, op, path, filepath.Dir(path)+" is a file; expected a directory").WithFix(fix)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return errs.New(errs.Invalid, op, path, "is a file that is no socket").WithFix("remove it, or set gpudirect.socket")
	}
	return nil
}
