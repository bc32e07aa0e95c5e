// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/metascan"
)

// BackupReport is what a backup or a restore copied.
type BackupReport struct {
	Files    int64 `json:"files"`    // of content
	Bytes    int64 `json:"bytes"`    // of these files
	Verified int64 `json:"verified"` // bytes of content that were compared with their checksums
}

// MetaFile is a file of the metadata, and how much of it can be read.
type MetaFile struct {
	Name    string `json:"name"`
	Changes int64  `json:"changes"`          // that can be read
	Lost    int64  `json:"lost,omitempty"`   // that are known to be lost
	Damage  string `json:"damage,omitempty"` // empty where the file is whole
}

func metaFiles(in []metascan.File) []MetaFile {
	out := []MetaFile{}
	for _, f := range in {
		out = append(out, MetaFile(f))
	}
	return out
}

func backupReport(r backup.Report) BackupReport {
	return BackupReport{Files: r.Files, Bytes: r.Bytes, Verified: r.Verified}
}

func (s onDisk) backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error) {
	o := backup.Options{To: to, Verify: verify}
	if progress != nil {
		o.Progress = func(r backup.Report) { progress(backupReport(r)) }
	}
	r, err := s.Backup(ctx, o)
	return backupReport(r), err
}

// Restore makes the store that a configuration names out of a backup. Its directory has to be missing or empty.
func Restore(ctx context.Context, c *config.Config, from string, verify bool, progress func(BackupReport)) (BackupReport, error) {
	o := backup.RestoreOptions{From: from, To: c.Data, Verify: verify}
	if progress != nil {
		o.Progress = func(r backup.Report) { progress(backupReport(r)) }
	}
	r, err := backup.Restore(ctx, o)
	return backupReport(r), err
}

// backupAsk is the body of a request for a backup.
type backupAsk struct {
	To     string `json:"to"`
	Verify bool   `json:"verify"`
}

// backupLine is one line of a backup's answer: progress, until the last one.
type backupLine struct {
	Progress *BackupReport `json:"progress,omitempty"`
	Report   *BackupReport `json:"report,omitempty"`
	Error    *problem      `json:"error,omitempty"`
}

func serveBackup(a Admin, w http.ResponseWriter, r *http.Request) {
	var ask backupAsk
	err := decodeBody(w, r, &ask)
	if err == nil && !filepath.IsAbs(ask.To) {
		err = errs.New(errs.Invalid, "back up store", ask.To, "is no absolute path")
	}
	if err != nil {
		answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	var last time.Time
	report, err := a.Backup(r.Context(), ask.To, ask.Verify, func(p BackupReport) {
		if now := time.Now(); now.Sub(last) >= 200*time.Millisecond {
			last = now
			_ = enc.Encode(backupLine{Progress: &p}) // who went away has ended the context
			_ = out.Flush()
		}
	})
	line := backupLine{Report: &report}
	if err != nil {
		line = backupLine{Error: newProblem(err)}
	}
	_ = enc.Encode(line)
}

// Backup lets the server copy its store and follows it.
func (r *remote) Backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error) {
	resp, err := r.send(ctx, http.MethodPost, "/v1/backup", backupAsk{To: to, Verify: verify})
	if err != nil {
		return BackupReport{}, err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var line backupLine
		if err := dec.Decode(&line); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			} else if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return BackupReport{}, errs.Wrap("back up store", r.dir, err)
		}
		switch {
		case line.Error != nil:
			return BackupReport{}, line.Error.err()
		case line.Report != nil:
			return *line.Report, nil
		case line.Progress != nil && progress != nil:
			progress(*line.Progress)
		}
	}
}
