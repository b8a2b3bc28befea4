// SPDX-License-Identifier: Apache-2.0

// Package fake is a cloud in memory for tests.
//
// It keeps the contract of package provider to the letter and misbehaves only
// where a test tells it to: [Options.Faults] and [Cloud.Inject] script errors, lost
// replies, slowness and partly created instances call by call, and
// [Options.Eventual] makes lists lag behind. A ledger holds every resource ever
// made, network interfaces, disks and addresses included, so that a test can
// end with [Cloud.Leaks].
//
// With [Options.Dir] the cloud lives in a file that several processes share:
// a process killed at any instant leaves the cloud as it was, and the next one
// finds it. With [Options.Boot] creating an instance starts something real,
// such as a guest's processes on loopback.
//
// The package registers no provider. A test that wants one by name says
// provider.AddCloudProvider("fake", fake.NewManager()).
package fake
