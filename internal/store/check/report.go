// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/nebulaio/nebulaio/internal/store/metascan"
)

// Options are the settings of a check.
type Options struct {
	// Repair corrects counts, indexes and marks (limits above all assigned numbers) from other records. Repair moves
	// files and records without an owner to quarantine/. Repair also corrects damage that prevents a store from
	// opening: a damaged identity of the store, and damaged bucket records. Repair deletes nothing: a changed record is
	// first saved to a file in quarantine/. While a problem remains that Repair cannot correct, Repair moves nothing,
	// because a damaged record may be the owner of a file that seems to have none.
	Repair bool
	// Unreadable makes Repair also move damaged records of objects, uploads and parts to quarantine/. After the damaged
	// records are moved, Repair can also move the files and records that belonged to them. Repair never moves records
	// of a newer format version.
	Unreadable bool
	// If Content is true, the check reads all content and compares it with its checksums, as Scrub does.
	Content bool
	// Progress is called from time to time with the number of records and files checked so far; nil means no calls.
	Progress func(records, files int64)
	// Reading is called from time to time with the bytes of content read so far, if Content is set; nil means no
	// calls.
	Reading func(bytes int64)
}

// Problem describes one violated invariant of a store.
type Problem struct {
	// Invariant names the violated rule: I1 to I8 as in the package comment, "age" (metadata older than the data) or
	// "content" (content that differs from its checksum). For data that cannot be read, Invariant is "record",
	// "metadata" or "witness".
	Invariant string
	What      string // the object, file or record with the problem
	Msg       string
	Repaired  bool
	Did       string // what Repair did, or why it did nothing; empty without Repair
}

// Report is the result of a check.
type Report struct {
	UUID     string
	Records  int64
	Versions int64
	Files    int64
	Bytes    int64
	Problems []Problem // the first problems found, at most MaxProblems; Found counts all problems
	Found    int64
	Repaired int64
	// Metadata lists the metadata files of the store. If a metadata file is damaged, the invariants were not checked.
	Metadata []metascan.File
	// Unfinished counts data files that the next Open will move from tmp/ to data/, or remove. Unfinished files do not
	// count as problems.
	Unfinished int64
}

// MaxProblems is the largest number of problems that a report lists.
const MaxProblems = 10000

// add appends a problem to the report and counts it.
func (r *Report) add(p Problem) {
	r.Found++
	if p.Repaired {
		r.Repaired++
	}
	if len(r.Problems) < MaxProblems {
		r.Problems = append(r.Problems, p)
	}
}
