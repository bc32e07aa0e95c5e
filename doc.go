// SPDX-License-Identifier: Apache-2.0

// Package nebulaio moves bytes between storage and GPU memory, and reports which route every byte took. Storage is a
// file, an NVMe disk or an S3 bucket.
//
// # Load a model
//
// A [System] holds the devices and the transfer engine of the process. Make one with [NewSystem] and share it.
// [System.Load] loads a model, [Model.Report] says which route its bytes took, and [Model.Free] frees its memory. The
// example of [System.Load] is a whole program.
//
// The path is a .safetensors file, an index, a model folder, or the same in a bucket ("s3://bucket/prefix").
// [LoadOptions] choose the tensors, or slices and shards of them.
//
// To read the headers first, or to bring your own device memory, use [System.OpenSource], then [Source.StartLoad].
//
// # Save a model
//
// [Model.Save] writes a loaded model, [System.Save] tensors of your own. A reader finds the old file or the new one,
// never a part.
//
// # Move other bytes
//
// [Open] reads a file or an object into device memory, and [Create] makes one of device memory. [System.OpenFile] reads
// and writes a file in place. [System.NewClient] makes a [Client] for many objects of one server.
// [System.Alloc] gives device memory to programs that have no allocator of their own.
//
// # Devices
//
// A device is "auto", "host", "cuda" or "cuda:N". Without a usable GPU, auto is host memory, and the report says why. A
// device that is asked for by name is never replaced. CUDA is found at run time: this package builds without it, and
// without cgo. [System.Survey] says what was found and what is missing.
//
// # Errors
//
// Every error is, or wraps, an [*Error] with the operation, its subject, the reason, the fix and an [ErrorKind]. Test
// for a kind with errors.Is and its sentinel, such as [ErrNotFound]. Get the parts with errors.As; see the example of
// [Error].
//
// # Jobs
//
// A method whose name begins with Start returns at once, with a job: Wait, Done, Progress and Report follow it, and the
// context given to Start cancels it. Memory given to a job belongs to it until Done. The methods without Start wait.
package nebulaio
