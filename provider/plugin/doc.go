// SPDX-License-Identifier: Apache-2.0

// Package plugin finds the provider that the environment asks for, whatever
// carries it. [Load] returns it as a provider.CloudProvider like any other:
//
//   - built in: linked into this program;
//   - a Go plugin: a .so file, opened in this process;
//   - a process plugin: a program that this one starts and keeps running;
//   - a socket: a provider that somebody else runs.
//
// # The folder
//
// [FolderVariable] names a folder. Every *.so in it is opened: an exported
// InitCloud func() is called, and what it or the plugin's init functions gave
// to provider.AddCloudProvider is there. A program in it whose file name is
// that of the provider asked for is its process plugin; other programs are not
// started, and other files are passed over.
//
// # One verified file
//
// With [EnableVariable] set to true, [PathVariable] names one plugin, a .so or
// a program, whose file name is that of the provider, with or without .so, and
// [HashVariable] its SHA-256. The bytes that are hashed are those that run: the
// file is copied to where nobody else can write while it is hashed. unix:///…
// in [PathVariable] is a socket, which needs no hash.
//
// # Rules
//
// An external provider wins over a built-in one of the same name, and the log
// says so. Two external ones of one name are an error. So is whatever cannot
// be loaded: nothing is passed over that the environment asks for.
package plugin
