package convert

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// Input is a file to convert.
type Input struct {
	Name string // as given on the command line
	file *os.File
	src  io.Reader // standard input or a pipe, until hold has copied it to a file
}

// Inputs opens files; - is standard input, and may be named once. The caller must call closeAll,
// also after an error.
func Inputs(paths []string, stdin io.Reader) (all []*Input, closeAll func(), err error) {
	closeAll = func() {
		for _, in := range all {
			in.file.Close() // Close on a nil file only returns an error
		}
	}
	standard := false
	for _, path := range paths {
		if path == "-" {
			if standard {
				return all, closeAll, usage("- stands for standard input and can be given once")
			}
			standard = true
			all = append(all, &Input{Name: "standard input", src: stdin})
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return all, closeAll, err
		}
		in := &Input{Name: path, file: f}
		all = append(all, in)
		info, err := f.Stat()
		switch {
		case err != nil:
			return all, closeAll, err
		case info.IsDir():
			return all, closeAll, fmt.Errorf("%s: is a folder; name the files in it", path)
		case !info.Mode().IsRegular():
			in.src = f
		}
	}
	return all, closeAll, nil
}

// hold copies pipes to unlinked temporary files with mode 0600, if the input is read more
// than once.
func hold(inputs []*Input, again bool) error {
	for _, in := range inputs {
		if in.src == nil || !again {
			continue
		}
		f, err := os.CreateTemp("", ".guildhall-convert-*")
		if err != nil {
			return err
		}
		err = os.Remove(f.Name())
		if err == nil {
			_, err = io.Copy(f, in.src)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("%s: cannot be copied to be read again: %w", in.Name, err), f.Close())
		}
		in.file.Close() // Close on a nil file only returns an error
		in.file, in.src = f, nil
	}
	return nil
}

// zip opens the file as a zip.
func (in *Input) zip() (*zip.Reader, error) {
	info, err := in.file.Stat()
	if err != nil {
		return nil, err
	}
	z, err := zip.NewReader(in.file, info.Size())
	if err != nil {
		return nil, &Error{File: in.Name, Text: "is no zip that can be read; fetch the file again", missing: true, cause: err}
	}
	return z, nil
}

// source is an Input during one pass. It computes the file's size and digest on the way.
type source struct {
	in   *Input
	from io.Reader
	hash hash.Hash
	size int64
}

// open returns the file at its first byte.
func (in *Input) open() (*source, error) {
	s := &source{in: in, from: in.src, hash: sha256.New()}
	if in.src == nil {
		if _, err := in.file.Seek(0, io.SeekStart); err != nil {
			return nil, &Error{File: in.Name, Text: "cannot be read: " + err.Error(), cause: err}
		}
		s.from = in.file
	}
	return s, nil
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.hash.Write(p[:n])
	s.size += int64(n)
	return n, err
}

// sum reads the rest of the file and returns the digest of the whole.
func (s *source) sum() (digest string, size int64, err error) {
	_, err = io.Copy(io.Discard, s)
	return hex.EncodeToString(s.hash.Sum(nil)), s.size, err
}
