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

// storeExists refuses a directory that holds no store: who looks at a store
// that is not there has mistyped its name.
func storeExists(dir string) error { return layout.StoreAt(dir) }

// store is what the server needs of a store beside the objects.
type store interface {
	object.Store
	object.Handles
	// id is the store's identity, the same for as long as it exists.
	id() string
	// canDraft says why objects cannot be written through descriptions of their files here; nil where they can.
	canDraft(ctx context.Context) error
	// reopenable says why files that are handed out can be opened again for writing by the server's user; nil where they
	// cannot.
	reopenable() error
	// writable says why the store takes no new content now; nil while it does.
	writable(ctx context.Context) error
	stats(ctx context.Context) (Stats, error)
	scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error)
	// expireUploads aborts multipart uploads without a sign of life since a time, and tells of each.
	expireUploads(ctx context.Context, before time.Time, told func(disk.Expired)) error
	backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error)
}

// Stats are the numbers of a store.
type Stats struct {
	Buckets     int64 `json:"buckets"`
	Objects     int64 `json:"objects"`      // current versions
	Versions    int64 `json:"versions"`     // noncurrent versions
	Markers     int64 `json:"markers"`      // delete markers
	Bytes       int64 `json:"bytes"`        // of content, of all versions
	InlineBytes int64 `json:"inline_bytes"` // of the content that is stored with the metadata
	Files       int64 `json:"files"`        // versions whose content is a file
	Uploads     int64 `json:"uploads"`      // multipart uploads in progress
	UploadBytes int64 `json:"upload_bytes"` // of their parts
	Damage      int64 `json:"damage"`       // damaged blocks met since the store was opened

	MetadataBytes int64 `json:"metadata_bytes"` // on disk
	LogBytes      int64 `json:"log_bytes"`      // of the metadata's log
	LogSyncs      int64 `json:"log_syncs"`      // of the metadata's log since the store was opened
	OpenFiles     int64 `json:"open_files"`     // data files held open
	Unsettled     int64 `json:"unsettled"`      // files that wait for their place
	Removing      int64 `json:"removing"`       // files that wait for being removed
	HeldFiles     int64 `json:"held_files"`     // files that exist only because a client was handed them
	HeldBytes     int64 `json:"held_bytes"`     // of their content
	DraftFiles    int64 `json:"draft_files"`    // files that clients are writing
	DraftBytes    int64 `json:"draft_bytes"`    // of the disk that those take
	FreeBytes     int64 `json:"free_bytes"`     // on the file system of the store; -1: not known

	Failure  string `json:"failure,omitempty"`  // why the store takes no more changes
	Refusing string `json:"refusing,omitempty"` // why the store takes no new content now
}

// ScrubProgress is how far a scrub is, in bytes of content.
type ScrubProgress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// Damage is content that differs from what was written.
type Damage struct {
	Bucket  string `json:"bucket"`
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
	File    string `json:"file,omitempty"` // empty where the content lies with the metadata
	Offset  int64  `json:"offset"`
	Length  int64  `json:"length"`
	What    string `json:"what"` // checksum, missing, short or unreadable
}

// ScrubReport is what a scrub found.
type ScrubReport struct {
	Objects int64    `json:"objects"` // versions with content
	Files   int64    `json:"files"`   // of these, those whose content is a file
	Bytes   int64    `json:"bytes"`
	Seconds float64  `json:"seconds"`
	Damaged int64    `json:"damaged"`
	Damage  []Damage `json:"damage"` // the first of them, where there are very many
}

// Clean reports whether all content is as it was written.
func (r ScrubReport) Clean() bool { return r.Damaged == 0 }

func (r ScrubReport) attrs() []any {
	return []any{"objects", r.Objects, "bytes", r.Bytes, "seconds", r.Seconds, "damaged", r.Damaged}
}

// CheckReport is what a check found.
type CheckReport struct {
	Records  int64     `json:"records"` // of metadata
	Versions int64     `json:"versions"`
	Files    int64     `json:"files"`
	Bytes    int64     `json:"bytes"`
	Found    int64     `json:"found"`    // problems
	Repaired int64     `json:"repaired"` // of these
	Problems []Problem `json:"problems"` // the first of them, where there are very many
	// Metadata are the files of the metadata. Where one of them is damaged, nothing else was looked at.
	Metadata []MetaFile `json:"metadata"`
	// Unfinished counts what the next start of the server finishes: it is nothing wrong.
	Unfinished int64 `json:"unfinished"`
}

// Problem is a broken invariant of the store.
type Problem struct {
	Invariant string `json:"invariant"`
	What      string `json:"what"`
	Message   string `json:"message"`
	Repaired  bool   `json:"repaired"`
	Did       string `json:"did,omitempty"` // what repair did, or why it did nothing
}

// Clean reports whether the check found nothing, or repaired all that it found.
func (r CheckReport) Clean() bool { return r.Found == r.Repaired }

// storeOptions is the configuration as the store takes it.
func storeOptions(c *config.Config, e events) disk.Options {
	o := disk.Options{Dir: c.Data, Inline: c.InlineSize, Memory: shares(c.MemoryLimit).store,
		ReadOnlyMount: c.GPUDirect.Enabled && c.GPUDirect.ReadOnlyMount,
		Events:        disk.Events{Damage: e.damage, Failed: e.failed, Background: e.background, Exposed: e.exposed}}
	if c.InlineSize == 0 {
		o.Inline = -1 // the store takes 0 for its default
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

// onDisk is the store on disk as the rest of this package sees it.
type onDisk struct{ *disk.Store }

// openStore opens the store that a configuration names, or makes it.
func openStore(ctx context.Context, c *config.Config, e events) (store, error) {
	st, err := disk.Open(ctx, storeOptions(c, e))
	if err != nil {
		return nil, err
	}
	return onDisk{st}, nil
}

func (s onDisk) id() string { return s.ID() }

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
		// What is written meanwhile is read too: the end is never passed.
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

// CheckOptions says what Check does beside looking.
type CheckOptions struct {
	Repair     bool // put right what follows from the rest, and move aside what nothing refers to
	Unreadable bool // with Repair: move damaged records aside too
	Content    bool // read all content
	// Progress, if not nil, is called now and then from one goroutine.
	Progress func(CheckProgress)
}

// CheckProgress is how far a check is: records and files looked at, and bytes of content read.
type CheckProgress struct{ Records, Files, Bytes int64 }

// Check proves that the metadata and the files of a stopped store agree, and
// with Repair mends what can be mended without deleting anything. It fails where a server runs on the store.
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

// Quarantined is one thing that a repair moved aside.
type Quarantined struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // file, records or unknown
	Path     string `json:"path,omitempty"`
	Records  int    `json:"records,omitempty"`
	Why      string `json:"why,omitempty"`
	When     string `json:"when,omitempty"` // RFC 3339
	Restored bool   `json:"restored,omitempty"`
}

// Restored is what was put back.
type Restored struct {
	Path    string   `json:"path,omitempty"`
	Records int      `json:"records,omitempty"`
	Kept    []string `json:"kept,omitempty"` // records that have changed since, and were left as they are
}

// Quarantine lists what repairs of a store moved aside.
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

// RestoreQuarantined puts back one thing that a repair moved aside. It fails where a server runs on the store.
func RestoreQuarantined(ctx context.Context, c *config.Config, name string) (Restored, error) {
	if err := storeExists(c.Data); err != nil {
		return Restored{}, err
	}
	r, err := disk.RestoreQuarantined(ctx, storeOptions(c, events{}), name)
	return Restored{Path: r.Path, Records: r.Records, Kept: r.Kept}, err
}
