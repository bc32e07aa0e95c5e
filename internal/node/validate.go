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

// Validate refuses a configuration with which a server on this machine cannot start. Both Run and nebulaio config use
// it, so that both refuse the same. It changes nothing: it makes no directory and no certificate.
//
// It ignores what other processes do at this moment. A port in use, or a store that another server holds, is no fault
// of the configuration.
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
	return usableDoor(c)
}

// privileged is the first port that every user may listen on, as Linux has it
// unless it was told otherwise.
const privileged = 1024

// assignable listens on an address for a moment, on any port of its host. A
// port that only some users may use is tried itself.
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
		return nil // a server that runs, perhaps this one
	}
	fix := fmt.Sprintf("set %s to an address of this machine, such as 127.0.0.1:9000 or :9000", key)
	if errors.Is(err, fs.ErrPermission) {
		fix = fmt.Sprintf("set %s to a port of %d or more, or give the server CAP_NET_BIND_SERVICE", key, privileged)
	}
	return &errs.Error{Kind: errs.Invalid, Op: "listen on", Name: address, Err: cause(err), Fix: fix}
}

// cause is an error of the network without the address, which the caller names.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

// usableData refuses a data directory that is something else or cannot be made.
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
	// The first directory on the way up that is there has to take the next one.
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
	need := uint32(unix.R_OK | unix.X_OK) // a store that is there can be served for reading
	if there != path {
		need = unix.W_OK | unix.X_OK
	}
	if err := unix.Faccessat(unix.AT_FDCWD, there, need, unix.AT_EACCESS); err != nil {
		return refuse("", &fs.PathError{Op: "use", Path: there, Err: err})
	}
	return nil
}

// readableCertificate loads the certificate that the server would answer with.
// One that is still to be generated is fine.
func readableCertificate(c *config.Config) error {
	if c.TLS.Generate {
		dir := filepath.Join(c.Data, "tls")
		_, err := usable(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), certificateHosts(c), time.Now())
		return err
	}
	_, err := loadCertificate(c, time.Now())
	return err
}

// usableDoor refuses a socket of the GPUDirect door that could not be made.
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
		return errs.New(errs.Invalid, op, path, "is the server's administration socket").WithFix("set gpudirect.socket to another name")
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
		return nil // the data directory, which is made
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
