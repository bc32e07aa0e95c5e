// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// DriverOpen opens the cuFile driver, or adds one user to an open driver. The first DriverOpen creates a CUDA context
// on every visible GPU.
func (l *Library) DriverOpen() error {
	return check("cuFileDriverOpen", l.fn.driverOpen.Call())
}

// DriverClose removes one user of the cuFile driver. When the last user is removed, the cuFile driver shuts down.
func (l *Library) DriverClose() error {
	return check("cuFileDriverClose", l.fn.driverClose.Call())
}

// UseCount returns the number of users in this process that have the cuFile driver open. If libcufile is too old to
// count its users, UseCount returns false for known.
func (l *Library) UseCount() (n int64, known bool) {
	if l.fn.useCount == 0 {
		return 0, false
	}
	return int64(l.fn.useCount.Call()), true
}

// Version returns the release of libcufile, such as "1.15". Version may be called before the cuFile driver is open.
func (l *Library) Version() string {
	var v int32
	if l.fn.getVersion == 0 {
		return "before 1.8"
	}
	if check("cuFileGetVersion", l.fn.getVersion.Call(ptr(&v))) != nil || v <= 0 {
		return "unknown"
	}
	s := fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	if patch := v % 10; patch != 0 {
		s += fmt.Sprintf(".%d", patch)
	}
	return s
}

// Properties returns the properties of the open cuFile driver.
func (l *Library) Properties() (Properties, error) {
	var p Properties
	err := check("cuFileDriverGetProperties", l.fn.driverGetProperties.Call(ptr(&p)))
	return p, err
}

// sizeParameters returns the parameters of cufile.json that are numbers. A parameter's index is its number in the
// library.
func sizeParameters() []string {
	return []string{"profile_stats", "max_io_queue_depth", "max_io_threads", "min_io_threshold_size_kb",
		"max_request_parallelism", "max_direct_io_size_kb",
		"max_device_cache_size_kb", "per_buffer_cache_size_kb", "max_device_pinned_mem_size_kb", "io_batchsize",
		"poll_threshold_size_kb", "batch_io_timeout_ms"}
}

func boolParameters() []string {
	return []string{"use_poll_mode", "allow_compat_mode", "force_compat_mode", "fs_misc_api_check_aggressive",
		"parallel_io", "profile_nvtx",
		"allow_system_memory", "use_pci_p2pdma", "prefer_iouring", "force_odirect_mode", "skip_topology_detection",
		"stream_memops_bypass"}
}

func stringParameters() []string { return []string{"logging_level", "env_logfile_path", "log_dir"} }

func index(names []string, name string) (int, error) {
	for i, n := range names {
		if n == name {
			return i, nil
		}
	}
	return 0, errs.New(errs.Invalid, "cuFile parameter", name, "is not known; expected one of "+strings.Join(names, ", "))
}

// SizeParameter returns the current value of a numeric cuFile parameter. SizeParameter fails with kind Invalid if the
// name is unknown, and with kind Unsupported if libcufile is too old.
func (l *Library) SizeParameter(name string) (uint64, error) {
	i, err := index(sizeParameters(), name)
	if err == nil {
		err = l.need("read a cuFile parameter with", &l.fn.getSizeT)
	}
	if err != nil {
		return 0, err
	}
	var v uint64
	err = check("cuFileGetParameterSizeT", l.fn.getSizeT.Call(i, ptr(&v)))
	return v, errs.Wrap("read cuFile parameter", name, err)
}

// BoolParameter returns the current value of a boolean cuFile parameter. BoolParameter fails with kind Invalid if the
// name is unknown, and with kind Unsupported if libcufile is too old.
func (l *Library) BoolParameter(name string) (bool, error) {
	i, err := index(boolParameters(), name)
	if err == nil {
		err = l.need("read a cuFile parameter with", &l.fn.getBool)
	}
	if err != nil {
		return false, err
	}
	var v uint64 // a C bool is the first byte of v
	err = check("cuFileGetParameterBool", l.fn.getBool.Call(i, ptr(&v)))
	return v&0xff != 0, errs.Wrap("read cuFile parameter", name, err)
}

// StringParameter returns the current value of a text parameter of cuFile. StringParameter fails with kind Invalid if
// the name is unknown, and with kind Unsupported if libcufile is too old.
func (l *Library) StringParameter(name string) (string, error) {
	i, err := index(stringParameters(), name)
	if err == nil {
		err = l.need("read a cuFile parameter with", &l.fn.getString)
	}
	if err != nil {
		return "", err
	}
	text := make([]byte, 4096)
	err = check("cuFileGetParameterString", l.fn.getString.Call(i, ptr(&text[0]), len(text)))
	s, _, _ := strings.Cut(string(text), "\x00")
	return s, errs.Wrap("read cuFile parameter", name, err)
}

// SetSizeParameter sets a numeric cuFile parameter for the whole process. SetSizeParameter fails with kind Invalid if
// any part of the process has the cuFile driver open.
func (l *Library) SetSizeParameter(name string, v uint64) error {
	i, err := index(sizeParameters(), name)
	if err == nil {
		err = l.need("set a cuFile parameter with", &l.fn.setSizeT)
	}
	if err == nil {
		err = l.unused()
	}
	if err == nil {
		err = check("cuFileSetParameterSizeT", l.fn.setSizeT.Call(i, v))
	}
	return errs.Wrap("set cuFile parameter", name, err)
}

// SetBoolParameter sets a boolean cuFile parameter for the whole process. SetBoolParameter fails with kind Invalid if
// any part of the process has the cuFile driver open.
func (l *Library) SetBoolParameter(name string, v bool) error {
	i, err := index(boolParameters(), name)
	if err == nil {
		err = l.need("set a cuFile parameter with", &l.fn.setBool)
	}
	if err == nil {
		err = l.unused()
	}
	n := 0
	if v {
		n = 1
	}
	if err == nil {
		err = check("cuFileSetParameterBool", l.fn.setBool.Call(i, n))
	}
	return errs.Wrap("set cuFile parameter", name, err)
}

// SetStringParameter sets a text parameter of cuFile for the whole process. SetStringParameter fails with kind
// Invalid if any part of the process has the cuFile driver open.
func (l *Library) SetStringParameter(name, v string) error {
	i, err := index(stringParameters(), name)
	if err == nil {
		err = l.need("set a cuFile parameter with", &l.fn.setString)
	}
	if err == nil {
		err = l.unused()
	}
	if err == nil {
		text := append([]byte(v), 0)
		err = check("cuFileSetParameterString", l.fn.setString.Call(i, ptr(&text[0])))
	}
	return errs.Wrap("set cuFile parameter", name, err)
}

// unused returns an error if the driver is open. The library checks this itself only for some settings.
func (l *Library) unused() error {
	if n, known := l.UseCount(); known && n > 0 {
		return failure("cuFileUseCount", 5026, 0)
	}
	return nil
}

// facts returns the current properties and parameters by name. Values that cannot be read are left out.
func (l *Library) facts() map[string]string {
	f := map[string]string{"version": l.Version(), "library": l.Name()}
	if p, err := l.Properties(); err == nil {
		f["nvfs_version"] = fmt.Sprintf("%d.%d", p.NVFSMajor, p.NVFSMinor)
		f["nvfs_supports"] = bits(p.Status, []string{"lustre", "wekafs", "nfs", "gpfs", "nvme", "nvmeof", "scsi", "scaleflux",
			"nvmesh", "beegfs", "yrcloudfile", "nvme_p2p", "scatefs", "virtiofs"})
		f["control"] = bits(p.Control, []string{"poll", "compat_allowed", "posix_io", "", "fallback_io"})
		f["features"] = bits(p.Features, []string{"dynamic_routing", "batch", "streams", "parallel_io", "p2p"})
		f["max_direct_io_size_kb"] = fmt.Sprint(p.MaxDirectIOKB)
		f["max_device_cache_size_kb"] = fmt.Sprint(p.MaxDeviceCacheKB)
		f["per_buffer_cache_size_kb"] = fmt.Sprint(p.PerBufferCacheKB)
		f["max_device_pinned_mem_size_kb"] = fmt.Sprint(p.MaxDevicePinnedKB)
		f["io_batchsize"] = fmt.Sprint(p.MaxBatch)
	}
	for _, n := range sizeParameters() {
		if v, err := l.SizeParameter(n); err == nil {
			f[n] = fmt.Sprint(v)
		}
	}
	for _, n := range boolParameters() {
		if v, err := l.BoolParameter(n); err == nil {
			f[n] = fmt.Sprint(v)
		}
	}
	for _, n := range stringParameters() {
		if v, err := l.StringParameter(n); err == nil && v != "" {
			f[n] = v
		}
	}
	return f
}

// bits returns the names of the bits that are set in v. A bit without a name is shown by its number.
func bits(v uint32, names []string) string {
	var set []string
	for i := range 32 {
		if v&(1<<i) == 0 {
			continue
		}
		if i < len(names) && names[i] != "" {
			set = append(set, names[i])
		} else {
			set = append(set, fmt.Sprintf("bit %d", i))
		}
	}
	if set == nil {
		return "none"
	}
	return strings.Join(set, ", ")
}
