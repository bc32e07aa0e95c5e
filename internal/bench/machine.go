// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
)

// Describe returns a description of this machine: its processor, memory, device and the storage that holds the files
// of the Set s. Fields of the description that cannot be read stay empty.
func Describe(info device.Info, s *dataset.Set) record.Machine {
	m := record.Machine{Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), CPU: cpuModel(),
		Device: record.Device{ID: info.ID, Kind: string(info.Kind), Model: info.Model, Driver: info.Driver, PCI: info.PCI,
			Memory: info.TotalMemory}}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		m.Memory = int64(si.Totalram) * int64(si.Unit)
	}
	if s == nil {
		return m
	}
	for _, g := range s.Groups {
		st := record.Storage{Path: g.Path, FS: g.Files[0].Storage().FS.Name}
		st.Direct, _ = g.Files[0].Direct()
		st.Block, st.Source, st.Model, st.Firmware = storageBelow(g.Dir)
		m.Storage = append(m.Storage, st)
	}
	return m
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		name, v, ok := strings.Cut(sc.Text(), ":")
		if ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// storageBelow returns the disk below dir. In sysfs, the directory of a disk contains the directories of its
// partitions.
func storageBelow(dir string) (block, source, model, firmware string) {
	name, sys := blockDevice(dir)
	if name == "" {
		return "", "", "", ""
	}
	source = "/dev/" + name
	if _, err := os.Stat(filepath.Join(sys, "partition")); err == nil {
		sys = filepath.Dir(sys)
		name = filepath.Base(sys)
	}
	read := func(file string) string {
		b, err := os.ReadFile(filepath.Join(sys, "device", file))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	return name, source, read("model"), read("firmware_rev")
}
