// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// certificateEvery is the time between two checks of the certificate's files. Unlike inotify, polling also notices
// replaced symbolic links above the file and changes on network file systems.
const certificateEvery = 5 * time.Second

// reloader replaces the certificate of a running server. Only one goroutine uses it.
type reloader struct {
	c    *config.Config
	cert func() *certificate
	use  func(*certificate)
	seen [2]fileMark // state of both files when they were last read
	// failed is the error of the last check, or "" if it succeeded. times counts the consecutive checks with that
	// error.
	failed string
	times  int
}

// fileMark identifies the state of a file. It changes if the file is written, replaced or reached through another
// link.
type fileMark struct {
	dev, ino      uint64
	size          int64
	mtime, change unix.Timespec
}

// markOf returns the fileMark of a file and follows links. A file that cannot be examined has the zero mark.
func markOf(path string) fileMark {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileMark{}
	}
	return fileMark{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim, change: st.Ctim}
}

func (r *reloader) marks() [2]fileMark {
	cert := r.cert()
	return [2]fileMark{markOf(cert.certFile), markOf(cert.keyFile)}
}

// look reads the files again if they changed or if the last read failed. It returns the new certificate, or nil if
// nothing changed. The error says why the old certificate stays in use.
//
// The server makes a generated certificate anew when it has expired, and otherwise leaves it alone.
func (r *reloader) look(now time.Time, force bool) (*certificate, error) {
	old := r.cert()
	if r.c.TLS.Generate && !force && now.Before(old.pair.Leaf.NotAfter) {
		return nil, nil
	}
	// The marks are taken before the read, so that the next check notices a change during the read.
	marks := r.marks()
	if !force && marks == r.seen && r.failed == "" && !r.c.TLS.Generate {
		return nil, nil
	}
	r.seen = marks
	next, err := loadCertificate(r.c, now)
	if err == nil {
		err = current(next, now)
	}
	if err != nil {
		if err.Error() != r.failed {
			r.failed, r.times = err.Error(), 0
		}
		r.times++
		return nil, err
	}
	r.failed, r.times = "", 0
	if slices.EqualFunc(next.pair.Certificate, old.pair.Certificate, bytes.Equal) {
		return nil, nil
	}
	r.use(next)
	return next, nil
}

// current refuses a certificate that has expired or is not valid yet: clients would refuse it.
func current(c *certificate, now time.Time) error {
	leaf := c.pair.Leaf
	var why, fix string
	switch {
	case now.After(leaf.NotAfter):
		why, fix = "expired at "+leaf.NotAfter.UTC().Format(time.RFC3339), "renew it"
	case now.Before(leaf.NotBefore):
		why, fix = "is not valid before "+leaf.NotBefore.UTC().Format(time.RFC3339), "set the clock of this machine, or wait"
	default:
		return nil
	}
	return errs.New(errs.Invalid, "use the certificate", c.certFile, why).WithFix(fix)
}

// reloadRegularly uses changed certificates until ctx ends. It checks the files at intervals, and at once on reload.
func (s *server) reloadRegularly(ctx context.Context, reload <-chan struct{}) {
	var r *reloader
	var tick <-chan time.Time
	if s.cert.Load() != nil {
		r = &reloader{c: s.Config, cert: s.cert.Load, use: s.cert.Store}
		r.seen = r.marks()
		t := time.NewTicker(certificateEvery)
		defer t.Stop()
		tick = t.C
	}
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-reload:
			asked = true
			s.tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", monotonicMicros()))
		}
		s.reload(r, time.Now(), asked)
		if asked {
			s.tell("READY=1")
		}
	}
}

// reload checks the certificate once and logs the result. A failure is logged if the user asked for the reload, or
// if two checks in a row fail. One failure is normal while the certificate and its key are replaced one after the
// other.
func (s *server) reload(r *reloader, now time.Time, asked bool) {
	log := component(s.log, "tls")
	if r == nil {
		log.Info("reloaded: there is no certificate to read again", "fix", "other settings take effect with a restart")
		return
	}
	next, err := r.look(now, asked)
	switch {
	case err != nil && (asked || r.times == 2):
		old := s.cert.Load()
		log.Error("the new certificate cannot be used; the old one stays in use", "error", err,
			"sha256", old.fingerprint, "until", old.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case err != nil:
	case next != nil:
		log.Info("took a new certificate", "file", next.certFile, "sha256", next.fingerprint,
			"until", next.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case asked:
		log.Info("reloaded: the certificate has not changed", "fix", "other settings take effect with a restart")
	}
}

// monotonicMicros returns the monotonic clock in microseconds, which a service manager needs for a reload.
func monotonicMicros() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano() / 1000
}
