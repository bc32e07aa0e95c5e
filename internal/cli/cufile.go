// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"

	"github.com/nebulaio/nebulaio/internal/doctor"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// cuFileHome is what this process, which is ours, prepares for libcufile: the
// configuration of doctor.CuFileConfig, with the log in a folder that is removed at
// the end. A user who names a place for the log keeps it.
type cuFileHome struct{ dir string }

// prepare sets the environment before the library is loaded. The Go runtime
// passes it on to C's.
func (h *cuFileHome) prepare(a *app) (err error) {
	if h.dir != "" {
		return nil
	}
	m, err := facts.Glance(os.TempDir(), a.Env)
	if err != nil {
		return err
	}
	if h.dir, err = os.MkdirTemp("", "nebulaio-cufile-"); err != nil {
		return errs.Wrap("make a folder for cuFile in", os.TempDir(), err)
	}
	config, err := doctor.CuFileConfig(facts.Live(), m, h.dir)
	if err != nil {
		return &errs.Error{Kind: errs.Invalid, Op: "prepare cuFile", Err: err, Fix: "correct cufile.json; nebulaio doctor checks it"}
	}
	env := map[string]string{"CUFILE_ENV_PATH_JSON": config}
	if a.Env("CUFILE_LOGFILE_PATH") == "" {
		env["CUFILE_LOGFILE_PATH"] = filepath.Join(h.dir, "cufile.log")
	}
	for name, v := range env {
		if err := os.Setenv(name, v); err != nil {
			return errs.Wrap("set", name, err)
		}
	}
	return nil
}

// remove takes away what prepare made; the library is closed by then.
func (h *cuFileHome) remove() error {
	if h.dir == "" {
		return nil
	}
	return errs.Wrap("remove", h.dir, os.RemoveAll(h.dir))
}
