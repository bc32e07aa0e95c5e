// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// CeilingsFile returns the default path of the file with this machine's measured limits. The parameter env looks up
// an environment variable; if neither XDG_CACHE_HOME nor HOME is set, the path is empty.
func CeilingsFile(env func(string) string) string {
	dir := env("XDG_CACHE_HOME")
	if home := env("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".cache")
	}
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "nebulaio", "ceilings.json")
}

// maxCeilings bounds the size in bytes of the file with measured limits.
const maxCeilings = 1 << 20

// LoadCeilings reads the measured limits from path. If path is empty or the file does not exist, LoadCeilings returns
// nil without an error.
func LoadCeilings(path string) (*record.Ceilings, error) {
	if path == "" {
		return nil, nil
	}
	// A pipe without a writer would wait in open, where no signal ends it.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.Wrap("read ceilings", path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCeilings+1))
	if err != nil {
		return nil, errs.Wrap("read ceilings", path, err)
	}
	bad := func(msg string) error {
		return errs.New(errs.Corrupt, "read ceilings", path, msg).WithFix("measure them again: nebulaio bench ceilings")
	}
	if len(b) > maxCeilings {
		return nil, bad(fmt.Sprintf("is longer than %d bytes", maxCeilings))
	}
	var c record.Ceilings
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, bad(err.Error())
	}
	if c.Schema != record.Schema {
		return nil, bad(fmt.Sprintf("is of version %d; expected %d", c.Schema, record.Schema))
	}
	for _, l := range c.Limits {
		if !(l.GBps > 0) || l.GBps > 1e6 {
			return nil, bad(fmt.Sprintf("the limit %s is %v GB/s; expected a rate", l.ID, l.GBps))
		}
	}
	return &c, nil
}

// KeepCeilings merges the limits c into the file at path, and replaces the file atomically. A limit that was measured
// again replaces its older value, and limits of other disks are kept.
func KeepCeilings(path string, c *record.Ceilings) error {
	if path == "" {
		return errs.New(errs.NotFound, "keep ceilings", "",
			"there is no folder for caches").WithFix("set HOME or XDG_CACHE_HOME, or give --ceilings FILE")
	}
	old, err := LoadCeilings(path)
	if err != nil && !errs.Is(err, errs.Corrupt) {
		return err
	}
	all := *c
	if old != nil && Differs(old.Machine, c.Machine) == "" {
		for _, l := range old.Limits {
			if _, again := c.Find(l.ID, l.On); !again {
				all.Limits = append(all.Limits, l)
			}
		}
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return errs.Wrap("keep ceilings in", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ceilings-*")
	if err != nil {
		return errs.Wrap("keep ceilings in", path, err)
	}
	_, err = tmp.Write(append(b, '\n'))
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return errs.Wrap("keep ceilings in", path, err)
	}
	return nil
}

// Differs returns the reason why stored limits belong to another machine, or "" if they belong to this one.
func Differs(kept, now record.Machine) string {
	switch {
	case kept.CPU != now.CPU || kept.CPUs != now.CPUs:
		return fmt.Sprintf("measured on %d x %s", kept.CPUs, kept.CPU)
	case kept.Memory/(1<<30) != now.Memory/(1<<30):
		return fmt.Sprintf("measured with %d GiB of memory", kept.Memory>>30)
	case kept.Device.Kind == string(device.CUDA) && now.Device.Kind == kept.Device.Kind &&
		kept.Device.Model != now.Device.Model:
		return "measured with " + kept.Device.Model
	}
	return ""
}

// aged is the age at which stored limits are doubted.
const aged = 90 * 24 * time.Hour

// Doubts lists the reasons to measure stored limits again: another kernel, another driver, or their age.
func Doubts(kept *record.Ceilings, now record.Machine, at time.Time) []string {
	var out []string
	if kept.Machine.Kernel != now.Kernel {
		out = append(out, fmt.Sprintf("ceilings were measured on kernel %s", kept.Machine.Kernel))
	}
	if kept.Machine.Device.Kind == now.Device.Kind && kept.Machine.Device.Driver != now.Device.Driver {
		out = append(out, fmt.Sprintf("ceilings were measured with driver %s", kept.Machine.Device.Driver))
	}
	if age := at.Sub(kept.Measured); age > aged {
		out = append(out, fmt.Sprintf("ceilings are %d days old", int(age.Hours()/24)))
	}
	return out
}
