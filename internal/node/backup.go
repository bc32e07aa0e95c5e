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

// BackupReport describes what a backup or a restore has copied.
type BackupReport struct {
	Files    int64 `json:"files"`    // number of copied data files
	Bytes    int64 `json:"bytes"`    // size of the copied data files in bytes
	Verified int64 `json:"verified"` // bytes of content that were compared with their checksums
}

// MetaFile describes a metadata file of the store and how much of the file can be read.
type MetaFile struct {
	Name    string `json:"name"`
	Changes int64  `json:"changes"`          // number of metadata changes that can be read from the file
	Lost    int64  `json:"lost,omitempty"`   // number of metadata changes in the file that are known to be lost
	Damage  string `json:"damage,omitempty"` // description of the damage; empty if the file is intact
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

// Restore creates a store from a backup. The parameter named from is the directory of the backup, and the store is
// created in the configuration's data directory. The data directory must be missing or empty. If verify is true,
// Restore compares the content of all objects with its checksums.
func Restore(ctx context.Context, c *config.Config, from string, verify bool,
	progress func(BackupReport)) (BackupReport, error) {
	o := backup.RestoreOptions{From: from, To: c.Data, Verify: verify}
	if progress != nil {
		o.Progress = func(r backup.Report) { progress(backupReport(r)) }
	}
	r, err := backup.Restore(ctx, o)
	return backupReport(r), err
}

// backupAsk is the request body of a backup.
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

// Backup implements Admin. Backup asks the server to copy the store, and receives its progress as a stream.
func (r *remote) Backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport,
	error) {
	return follow[BackupReport, BackupReport](ctx, r, "back up store", "/v1/backup", backupAsk{To: to, Verify: verify},
		progress)
}
