;; Is a program with main, not a library.
;; want: exports: reactor
(module (memory (export "memory") 1) (func (export "_start")))
