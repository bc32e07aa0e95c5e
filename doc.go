// SPDX-License-Identifier: Apache-2.0

// Package nebulaio moves bytes between storage and GPU memory, and reports which route every byte took. Storage is a
// file, an NVMe disk or an S3 bucket.
//
// # Load a model
//
// A [System] holds the devices and the transfer engine of the process. Make one System with [NewSystem] and use it
// everywhere in the program. A model is loaded by [System.Load] and freed by [Model.Free]; [Model.Report] says which
// route its bytes took. The example of [System.Load] is a complete program.
//
// The path of a model names a .safetensors file, an index file or a model folder, on disk or in a bucket
// ("s3://bucket/prefix"). The [LoadOptions] choose tensors, or slices and shards of tensors.
//
// To read the headers of a model's files before a load, or to load into your own device memory, use
// [System.OpenSource], then [Source.StartLoad].
//
// # Save a model
//
// [Model.Save] writes a loaded model, and [System.Save] writes any tensors in memory. During a save, readers of the
// path see the complete old file or the complete new one.
//
// # Move other bytes
//
// Use [Open] to read a file or an object into device memory, and [Create] to write a new file or object from device
// memory. Use [System.OpenFile] to read and write a file at any offset. For many objects of one server, make a
// [Client] with [System.NewClient]. Programs without an allocator of their own get device memory from [System.Alloc].
//
// # Devices
//
// A device is named "auto", "host", "cuda" or "cuda:N". If no GPU is usable, "auto" means host memory, and the report
// gives the reason. If a program asks for "cuda" or "cuda:N" and the GPU is not usable, the call fails; host memory is
// never used instead. Package nebulaio builds without CUDA and without cgo: it opens the CUDA libraries at run time.
// The devices and libraries that were found or are missing are listed by [System.Survey].
//
// # Errors
//
// Every error is, or wraps, an [*Error] with the operation, its subject, the reason, the fix and an [ErrorKind]. To
// test for a kind of error, use errors.Is with a sentinel such as [ErrNotFound]. To read the fields of an [Error],
// use errors.As; see the example of [Error].
//
// # Jobs
//
// A method whose name begins with Start returns a running job at once. A running job has the methods Wait, Done,
// Progress and Report, and the context of the Start method cancels the job. The caller must not use memory that was
// given to a job until the job's Done channel is closed. Methods without Start in their name wait for the end of the
// work.
package nebulaio
