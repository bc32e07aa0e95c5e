// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/nebulaio/nebulaio/internal/store/metascan"
)

// Options says what Check does beside looking.
type Options struct {
	// Repair puts right counts, indexes and marks that follow from the rest, and moves aside what nothing refers to. It
	// also puts right what keeps a store from opening: its identity, and damaged records of buckets. Repair deletes
	// nothing: files go to quarantine/, and records are written to a file there before they are changed. While anything
	// is wrong that repair cannot put right, nothing is moved aside: it might belong to that.
	Repair bool
	// Unreadable makes Repair move aside damaged records of objects, uploads and parts too, after which what belonged to
	// them can be moved aside. Records of a newer version always stay.
	Unreadable bool
	// Content reads all content and compares it with its checksums, as Scrub does.
	Content bool
	// Progress hears from time to time how many records and files were looked at; nil is allowed.
	Progress func(records, files int64)
	// Reading hears from time to time how many bytes of content were read, with Content; nil is allowed.
	Reading func(bytes int64)
}

// Problem is an invariant that does not hold.
type Problem struct {
	// Invariant is I1 to I8, see the package comment; "record", "metadata" or "witness" for what cannot be read; "age" or
	// "content".
	Invariant string
	What      string // on what: an object, a file, a record
	Msg       string
	Repaired  bool
	Did       string // what repair did, or why it did nothing; empty without Repair
}

// Report is what Check found.
type Report struct {
	UUID     string
	Records  int64
	Versions int64
	Files    int64
	Bytes    int64
	Problems []Problem // at most MaxProblems; Found counts all
	Found    int64
	Repaired int64
	// Metadata are the files of the metadata. Where one of them is damaged, the invariants were not looked at.
	Metadata []metascan.File
	// Unfinished is work of a stopped store that the next Open does: files to be settled or removed. It is no problem.
	Unfinished int64
}

// MaxProblems bounds the problems that a report names.
const MaxProblems = 10000

// add adds a problem to the report, and counts it.
func (r *Report) add(p Problem) {
	r.Found++
	if p.Repaired {
		r.Repaired++
	}
	if len(r.Problems) < MaxProblems {
		r.Problems = append(r.Problems, p)
	}
}
