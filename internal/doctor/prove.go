// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	proofReads = 16
	proofSize  = 1 << 20 // of each read, and of the buffer
	proofAlign = 4096
	proofLimit = 30 * time.Second
	// proofGrace is how long a killed process may take to be gone.
	proofGrace = 5 * time.Second
	maxOutput  = 1 << 20
)

// ProveOptions configures Prove.
type ProveOptions struct {
	// GPU is the CUDA index of the GPU; a negative value means the first GPU.
	GPU int
	// Command returns a command that runs this program with the given arguments. If Command is nil, no proof is
	// tried.
	Command func(ctx context.Context, args ...string) *exec.Cmd
	// Limit is the longest time that the separate process of the proof may take; 0 means 30 s.
	Limit time.Duration
}

// Prove reads the diagnosed path (the target of m) through cuFile in a separate process and returns the observed
// route. Thanks to the separate process, a crash, a log file or a GPU context of cuFile does not affect the caller.
// If the target is a directory, Prove creates a temporary file of 16 MiB in it. The separate process runs `doctor
// prove` with the configuration that CuFileConfig writes. At the end, Prove removes all temporary files of the proof.
func Prove(ctx context.Context, t facts.Tree, m facts.Meta, o ProveOptions) *facts.Proof {
	p := &facts.Proof{GPU: max(o.GPU, 0)}
	if why, fix := unprovable(m, p.GPU, o); why != "" {
		p.Skipped, p.Fix = why, fix
		return p
	}
	path, remove, err := proofFile(m.Target)
	if err != nil {
		p.Skipped = plain(err)
		return p
	}
	defer remove()
	dir, err := os.MkdirTemp("", "nebulaio-proof-")
	if err != nil {
		p.Skipped = plain(err)
		return p
	}
	defer os.RemoveAll(dir)
	config, err := CuFileConfig(t, m, dir)
	if err != nil {
		p.Skipped, p.Fix = plain(err), "correct cufile.json; see the finding cufile.json"
		return p
	}
	limit := o.Limit
	if limit <= 0 {
		limit = proofLimit
	}
	p = runProof(ctx, o.Command, p.GPU, path, dir, config, limit)
	p.Log = firstError(dir)
	return p
}

// unprovable returns the reason why no proof is possible, and a fix.
func unprovable(m facts.Meta, gpu int, o ProveOptions) (why, fix string) {
	id := fmt.Sprintf("cuda:%d", gpu)
	switch {
	case m.Target == nil:
		return "no path was given", ""
	case m.Survey == nil:
		return "GPUs were not queried", ""
	case m.Survey.NoGPU != "":
		return "no GPU that CUDA can use: " + m.Survey.NoGPU, m.Survey.Fix
	case !slices.ContainsFunc(m.Survey.Devices, func(d device.Info) bool { return d.ID == id }):
		return "CUDA shows no " + id, ""
	case o.Command == nil:
		return "there is no program to run", ""
	}
	return "", ""
}

// proofFile returns the file to read. If the target is a directory, this is a temporary file with content, because
// holes are read differently. The file keeps its name while it is read, because cuFile opens it again by name.
func proofFile(t *facts.Target) (path string, remove func(), err error) {
	st, err := os.Stat(t.Path)
	switch {
	case err != nil:
		return "", nil, err
	case st.Mode().IsRegular() && st.Size() < proofAlign:
		return "", nil, fmt.Errorf("the file has %d bytes; a read needs %d", st.Size(), proofAlign)
	case st.Mode().IsRegular():
		return t.Path, func() {}, nil
	case !st.IsDir():
		return "", nil, errors.New("neither a regular file nor a directory")
	}
	f, err := os.CreateTemp(t.Path, ".nebulaio-proof-*")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.Remove(f.Name()) } // what cannot be removed could not have been made
	block := make([]byte, proofSize)
	r := rand.NewChaCha8([32]byte{1})
	for range proofReads {
		_, _ = r.Read(block) // never fails
		if _, err = f.Write(block); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		remove()
		return "", nil, err
	}
	return f.Name(), remove, nil
}

// CuFileConfig writes a cuFile configuration for a process of this program into the directory dir and returns the
// path of the file. The written configuration is that of the user, except that cuFile logs to dir. The configuration
// turns on statistics by route only if nvidia-fs is loaded or P2PDMA is configured, because libcufile 1.15 can crash
// after counting in compatibility mode. If the configuration leaves statistics off, the process turns them on later,
// once the opened libcufile shows a direct route.
func CuFileConfig(t facts.Tree, m facts.Meta, dir string) (string, error) {
	f := facts.Gather(t, m, -1)
	c := f.CuFile
	if c.Err != nil {
		return "", fmt.Errorf("%s cannot be used: %w", c.Path, c.Err)
	}
	v := c.Values
	if v == nil {
		v = map[string]any{}
	}
	level := 0
	if p2p, _ := usesP2PDMA(f); p2p || f.NVFS() {
		level = 3
	}
	for section, set := range map[string]struct {
		key string
		to  any
	}{"logging": {"dir", dir}, "profile": {"cufile_stats", level}} {
		part, ok := v[section].(map[string]any)
		if !ok {
			part = map[string]any{}
		}
		part[set.key] = set.to
		v[section] = part
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "cufile.json")
	return name, os.WriteFile(name, b, 0o600)
}

// runProof starts the process and waits at most limit for its answer.
func runProof(ctx context.Context, command func(context.Context, ...string) *exec.Cmd, gpu int, path, dir,
	config string, limit time.Duration) *facts.Proof {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := command(ctx, "doctor", "prove", "--gpu", fmt.Sprint(gpu), path)
	var out, text bounded
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &out, &text, dir, time.Second
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "CUFILE_ENV_PATH_JSON=") || strings.HasPrefix(kv, "CUFILE_LOGFILE_PATH=")
	})
	cmd.Env = append(cmd.Env, "CUFILE_ENV_PATH_JSON="+config)
	p := &facts.Proof{GPU: gpu}
	if err := cmd.Start(); err != nil {
		p.Error = plain(err)
		return p
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stuck := time.NewTimer(limit + proofGrace)
	defer stuck.Stop()
	var err error
	select {
	case err = <-ended:
	case <-stuck.C:
		// It hangs in the kernel, where no signal reaches it.
		p.Error, p.Fix = fmt.Sprintf("the process %d that reads through cuFile does not end, not even when killed",
			cmd.Process.Pid), "see dmesg and cat /proc/PID/stack"
		return p
	}
	// An answer counts even if the library fails while the process ends.
	if answer := lastObject(out.b); answer != nil && json.Unmarshal(answer, p) == nil {
		p.GPU = gpu
		return p
	}
	p = &facts.Proof{GPU: gpu, Error: "the process that reads through cuFile gave no answer",
		Fix: "run it yourself: nebulaio doctor prove --gpu " + fmt.Sprint(gpu) + " " + quote(path)}
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		p.Error = fmt.Sprintf("the process that reads through cuFile took longer than %v and was ended", limit)
	case err != nil:
		p.Error = "the process that reads through cuFile ended: " + err.Error()
	}
	if s := strings.TrimSpace(string(text.b)); s != "" {
		first, _, _ := strings.Cut(s, "\n")
		p.Error += ": " + first
	}
	return p
}

// lastObject returns the last line of out that is a JSON object. Libraries may print lines before it, or when the
// process ends.
func lastObject(out []byte) []byte {
	lines := bytes.Split(out, []byte("\n"))
	for _, l := range slices.Backward(lines) {
		if bytes.HasPrefix(l, []byte("{")) && json.Valid(l) {
			return l
		}
	}
	return nil
}

// bounded keeps only the beginning of what is written to it.
type bounded struct{ b []byte }

func (w *bounded) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), maxOutput-len(w.b))]...)
	return len(p), nil
}

// firstError returns the line of cuFile's logs in dir that best explains why a file was refused. That is a line with
// a known cause, else the first ERROR line. Lines about the topology are ignored, because machines without PCIe
// switches always have them.
func firstError(dir string) string {
	names, _ := filepath.Glob(filepath.Join(dir, "cufile*.log")) // the pattern is well formed
	first := ""
	for _, n := range names {
		b, err := facts.Live().ReadFile(n)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			_, text, ok := strings.Cut(line, " ERROR ")
			if !ok || strings.Contains(text, "cufio-topo") {
				continue
			}
			for _, cause := range []string{"udev property not found", "not registered with nvidia-fs",
				"error getting volume attributes"} {
				if strings.Contains(text, cause) {
					return clean(text)
				}
			}
			if first == "" {
				first = clean(text)
			}
		}
	}
	return first
}

// plain returns an error's text without its fix.
func plain(err error) string {
	text := err.Error()
	if fix := errs.FixOf(err); fix != "" {
		text = strings.ReplaceAll(text, " (fix: "+fix+")", "")
	}
	return text
}
