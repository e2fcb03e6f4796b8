;; Puts maps into maps without end.
;; want: LimitError: nesting|handles
(data (i32.const 0) "spec")
(func $bad (local $h i32)
  (local.set $h (i32.const 1))
  (loop $l
    (local.set $h (call $set_map (local.get $h) (i32.const 0) (i32.const 4)))
    (br $l)))
