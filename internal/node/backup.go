// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"
	"path/filepath"

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
func Restore(ctx context.Context, c *config.Config, from string, verify bool,
	progress func(BackupReport)) (BackupReport, error) {
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

// serveBackup answers a request for a backup.
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
	stream(w, func(progress func(BackupReport)) (BackupReport, error) {
		return a.Backup(r.Context(), ask.To, ask.Verify, progress)
	})
}

// Backup makes the server copy its store, and follows the copy.
func (r *remote) Backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport,
	error) {
	return follow[BackupReport, BackupReport](ctx, r, "back up store", "/v1/backup", backupAsk{To: to, Verify: verify},
		progress)
}
