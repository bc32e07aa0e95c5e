// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// storeExists returns an error if the directory holds no store, usually because its name is mistyped.
func storeExists(dir string) error { return layout.StoreAt(dir) }

// store is the interface of a store that the server needs.
type store interface {
	object.Store
	object.Handles
	object.Directories
	// journal returns the journal of changes.
	journal() object.Journal
	// id returns the identity of the store, which never changes.
	id() string
	// canDraft returns why clients of the door cannot write objects, or nil if they can.
	canDraft(ctx context.Context) error
	// reopenable returns why the server's user can reopen a handed-out file for writing, or nil if nobody can.
	reopenable() error
	// writable returns why the store accepts no new content now, or nil if it accepts new content.
	writable(ctx context.Context) error
	stats(ctx context.Context) (Stats, error)
	scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error)
	// expireUploads aborts multipart uploads that got no part since before, and calls told for each of them.
	expireUploads(ctx context.Context, before time.Time, told func(disk.Expired)) error
	backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error)
}

// Stats holds the statistics of a store.
type Stats struct {
	Buckets     int64 `json:"buckets"`
	Objects     int64 `json:"objects"`      // number of current object versions
	Versions    int64 `json:"versions"`     // number of noncurrent object versions
	Markers     int64 `json:"markers"`      // number of delete markers
	Bytes       int64 `json:"bytes"`        // bytes of content of all object versions
	InlineBytes int64 `json:"inline_bytes"` // bytes of content that is stored with the metadata
	Files       int64 `json:"files"`        // number of object versions that are stored in their own data file
	Uploads     int64 `json:"uploads"`      // multipart uploads in progress
	UploadBytes int64 `json:"upload_bytes"` // bytes of the parts of multipart uploads in progress
	Damage      int64 `json:"damage"`       // damaged blocks found since the store was opened

	MetadataBytes int64 `json:"metadata_bytes"` // bytes of metadata on disk
	LogBytes      int64 `json:"log_bytes"`      // bytes in the metadata's write-ahead log
	LogSyncs      int64 `json:"log_syncs"`      // flushes of the metadata's write-ahead log since the store was opened
	OpenFiles     int64 `json:"open_files"`     // data files that the store keeps open
	Unsettled     int64 `json:"unsettled"`      // data files that still have to be moved to their final directory
	Removing      int64 `json:"removing"`       // data files that still have to be removed
	HeldFiles     int64 `json:"held_files"`     // data files that exist only because a client of the door has them open
	// bytes in the data files that HeldFiles counts
	HeldBytes  int64 `json:"held_bytes"`
	DraftFiles int64 `json:"draft_files"` // data files that clients of the door are writing
	DraftBytes int64 `json:"draft_bytes"` // bytes on disk of data files that clients of the door are writing
	FreeBytes  int64 `json:"free_bytes"`  // free bytes in the store's file system; -1 means not known

	Failure  string `json:"failure,omitempty"`  // why the store accepts no more changes; empty while it accepts changes
	Refusing string `json:"refusing,omitempty"` // why the store refuses new content now; empty while it accepts content
}

// ScrubProgress is the progress of a scrub, in bytes of content.
type ScrubProgress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// Damage describes stored content that differs from the content that was written.
type Damage struct {
	Bucket  string `json:"bucket"`
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
	// path of the data file; empty if the content is stored with the metadata
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	What   string `json:"what"` // kind of damage: checksum, missing, short, unreadable, declared or record
}

// ScrubReport is the result of a scrub, which compares all content with its checksums.
type ScrubReport struct {
	Objects int64    `json:"objects"` // number of object versions with content that were read
	Files   int64    `json:"files"`   // object versions that are stored in their own data file
	Bytes   int64    `json:"bytes"`
	Seconds float64  `json:"seconds"`
	Damaged int64    `json:"damaged"`
	Damage  []Damage `json:"damage"` // damaged blocks; only the first ones if there are very many
}

// Clean reports whether the scrub found no damage.
func (r ScrubReport) Clean() bool { return r.Damaged == 0 }

func (r ScrubReport) attrs() []any {
	return []any{"objects", r.Objects, "bytes", r.Bytes, "seconds", r.Seconds, "damaged", r.Damaged}
}

// CheckReport is the result of a check of a store.
type CheckReport struct {
	Records  int64     `json:"records"` // records of metadata
	Versions int64     `json:"versions"`
	Files    int64     `json:"files"`
	Bytes    int64     `json:"bytes"`
	Found    int64     `json:"found"`    // number of problems that the check found
	Repaired int64     `json:"repaired"` // number of problems that the check repaired
	Problems []Problem `json:"problems"` // problems found; only the first ones if there are very many
	// Metadata lists the metadata files of the store. If a metadata file is damaged, Check has examined only the
	// metadata files.
	Metadata []MetaFile `json:"metadata"`
	// Unfinished counts data files that the next start of the server moves to their final directory or removes.
	// Unfinished data files do not count as problems.
	Unfinished int64 `json:"unfinished"`
}

// Problem describes a violated invariant of the store.
type Problem struct {
	Invariant string `json:"invariant"`
	What      string `json:"what"`
	Message   string `json:"message"`
	Repaired  bool   `json:"repaired"`
	Did       string `json:"did,omitempty"` // what the repair did about the problem, or why it did nothing
}

// Clean reports whether the check found no problems, or repaired all of them.
func (r CheckReport) Clean() bool { return r.Found == r.Repaired }

// storeOptions returns the options of the store from the configuration.
func storeOptions(c *config.Config, e events) disk.Options {
	o := disk.Options{Dir: c.Data, Inline: c.InlineSize, Memory: shares(c.MemoryLimit).store,
		JournalLimit: c.Events.JournalLimit, ReadOnlyMount: c.GPUDirect.Enabled && c.GPUDirect.ReadOnlyMount,
		Events: disk.Events{Damage: e.damage, Failed: e.failed, Background: e.background, Exposed: e.exposed,
			JournalDropped: e.dropped}}
	if c.InlineSize == 0 {
		o.Inline = -1 // 0 would mean the store's default
	}
	switch c.VerifyReads {
	case "always":
		o.Verify = "always"
	case "never":
		o.Verify = "never"
	default:
		o.Verify = "first"
	}
	return o
}

// onDisk makes a disk.Store a store.
type onDisk struct{ *disk.Store }

// openStore opens the store in the configuration's data directory, or creates it.
func openStore(ctx context.Context, c *config.Config, e events) (onDisk, error) {
	st, err := disk.Open(ctx, storeOptions(c, e))
	return onDisk{st}, err
}

func (s onDisk) id() string { return s.ID() }

func (s onDisk) journal() object.Journal { return s.Store }

func (s onDisk) reopenable() error { return s.Reopenable() }

func (s onDisk) canDraft(ctx context.Context) error { return s.CanDraft(ctx) }

func (s onDisk) writable(ctx context.Context) error { return s.Writable(ctx) }

func (s onDisk) expireUploads(ctx context.Context, before time.Time, told func(disk.Expired)) error {
	return s.ExpireUploads(ctx, before, told)
}

func (s onDisk) stats(context.Context) (Stats, error) {
	d, err := s.Stats()
	if err != nil {
		return Stats{}, err
	}
	return Stats{
		Buckets: d.Buckets, Objects: d.Objects, Versions: d.Versions, Markers: d.Markers, Bytes: d.Bytes,
		InlineBytes: d.InlineBytes,
		Files:       d.Files, Uploads: d.Uploads, UploadBytes: d.PartBytes, Damage: d.Damage,
		MetadataBytes: int64(d.Metadata.DiskBytes), LogBytes: int64(d.Metadata.LogBytes),
		LogSyncs:  int64(d.Metadata.SyncCount),
		OpenFiles: d.OpenFiles, Unsettled: d.Unsettled, Removing: d.Removing,
		HeldFiles: d.HeldFiles, HeldBytes: d.HeldBytes, DraftFiles: d.DraftFiles, DraftBytes: d.DraftBytes,
		FreeBytes: d.FreeBytes, Failure: d.Failure, Refusing: d.Refusing,
	}, nil
}

func (s onDisk) scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error) {
	began := time.Now()
	d, err := s.Stats()
	if err != nil {
		return ScrubReport{}, err
	}
	o := disk.ScrubOptions{Rate: rate}
	if progress != nil {
		// The scrub also reads new content, so that Total has to grow with Done.
		o.Progress = func(r disk.ScrubReport, _ *object.Damage) {
			progress(ScrubProgress{Done: r.Bytes, Total: max(r.Bytes, d.Bytes+d.PartBytes)})
		}
	}
	r, err := s.Scrub(ctx, o)
	if err != nil {
		return ScrubReport{}, err
	}
	report := ScrubReport{Objects: r.Objects, Files: r.Files, Bytes: r.Bytes, Damaged: r.Damaged, Damage: []Damage{},
		Seconds: time.Since(began).Seconds()}
	for _, d := range r.Damage {
		report.Damage = append(report.Damage,
			Damage{Bucket: d.Bucket, Key: d.Key, Version: d.Version, File: d.File, Offset: d.Off, Length: d.N, What: d.What})
	}
	return report, nil
}

// CheckOptions selects what Check does beyond comparing metadata and files.
type CheckOptions struct {
	// Repair makes Check correct records that can be derived from other records, and move unused files and records
	// into quarantine.
	Repair     bool
	Unreadable bool // with Repair: also move damaged records into quarantine
	Content    bool // read all content and compare it with its checksums
	// Progress, if not nil, is called from time to time by one goroutine.
	Progress func(CheckProgress)
}

// CheckProgress counts the records and files that a check has examined and the bytes of content that it has read.
type CheckProgress struct{ Records, Files, Bytes int64 }

// Check checks that the metadata and the data files of a stopped store agree. With CheckOptions.Repair, Check
// repairs what it can without deleting anything. Check fails if a server runs on the store.
func Check(ctx context.Context, c *config.Config, o CheckOptions) (CheckReport, error) {
	if err := storeExists(c.Data); err != nil {
		return CheckReport{}, err
	}
	k := check.Options{Repair: o.Repair, Unreadable: o.Unreadable, Content: o.Content}
	if o.Progress != nil {
		var now CheckProgress
		k.Progress = func(records, files int64) {
			now.Records, now.Files = records, files
			o.Progress(now)
		}
		k.Reading = func(bytes int64) {
			now.Bytes = bytes
			o.Progress(now)
		}
	}
	r, err := disk.Check(ctx, storeOptions(c, events{}), k)
	if err != nil {
		return CheckReport{}, err
	}
	report := CheckReport{Records: r.Records, Versions: r.Versions, Files: r.Files, Bytes: r.Bytes, Found: r.Found,
		Repaired: r.Repaired, Unfinished: r.Unfinished, Problems: []Problem{},
		Metadata: metaFiles(r.Metadata)}
	for _, p := range r.Problems {
		report.Problems = append(report.Problems, Problem{Invariant: p.Invariant, What: p.What, Message: p.Msg,
			Repaired: p.Repaired, Did: p.Did})
	}
	return report, nil
}

// Quarantined describes a file or a group of records that a repair has moved into quarantine.
type Quarantined struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // kind of the entry: "file", "records" or "unknown"
	Path     string `json:"path,omitempty"`
	Records  int    `json:"records,omitempty"`
	Why      string `json:"why,omitempty"`
	When     string `json:"when,omitempty"` // RFC 3339
	Restored bool   `json:"restored,omitempty"`
}

// Restored describes what RestoreQuarantined has put back into the store.
type Restored struct {
	Path    string   `json:"path,omitempty"`
	Records int      `json:"records,omitempty"`
	Kept    []string `json:"kept,omitempty"` // records that have changed since the repair and were not restored
}

// Quarantine lists the files and records that repairs of a store have moved into quarantine.
func Quarantine(ctx context.Context, c *config.Config) ([]Quarantined, error) {
	if err := storeExists(c.Data); err != nil {
		return nil, err
	}
	list, err := disk.Quarantine(ctx, storeOptions(c, events{}))
	all := []Quarantined{}
	for _, q := range list {
		when := ""
		if !q.When.IsZero() {
			when = q.When.UTC().Format(time.RFC3339)
		}
		all = append(all, Quarantined{Name: q.Name, Kind: q.Kind, Path: q.Path, Records: q.Records, Why: q.Why, When: when,
			Restored: q.Restored})
	}
	return all, err
}

// RestoreQuarantined puts a file or a group of records from quarantine back into the store. The parameter name is the
// Quarantined.Name of the file or group. RestoreQuarantined fails if a server runs on the store.
func RestoreQuarantined(ctx context.Context, c *config.Config, name string) (Restored, error) {
	if err := storeExists(c.Data); err != nil {
		return Restored{}, err
	}
	r, err := disk.RestoreQuarantined(ctx, storeOptions(c, events{}), name)
	return Restored{Path: r.Path, Records: r.Records, Kept: r.Kept}, err
}
