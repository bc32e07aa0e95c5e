// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"

	"github.com/nebulaio/nebulaio/internal/doctor"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// cuFileHome holds the temporary directory with libcufile's configuration and log for this process.
// doctor.CuFileConfig writes the configuration. remove deletes the directory. If the user has set a path for the log,
// that path is kept.
type cuFileHome struct{ dir string }

// prepare sets the environment variables of libcufile before the library is
// loaded. The Go runtime passes them on to C.
func (h *cuFileHome) prepare(a *app) (err error) {
	if h.dir != "" {
		return nil
	}
	m, err := facts.Glance(os.TempDir(), a.Env)
	if err != nil {
		return err
	}
	if h.dir, err = os.MkdirTemp("", "nebulaio-cufile-"); err != nil {
		return errs.Wrap("create a directory for cuFile in", os.TempDir(), err)
	}
	config, err := doctor.CuFileConfig(facts.Live(), m, h.dir)
	if err != nil {
		return &errs.Error{Kind: errs.Invalid, Op: "prepare cuFile", Err: err,
			Fix: "correct cufile.json; nebulaio doctor checks it"}
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

// remove deletes the directory. The library must be closed before.
func (h *cuFileHome) remove() error {
	if h.dir == "" {
		return nil
	}
	return errs.Wrap("remove", h.dir, os.RemoveAll(h.dir))
}
