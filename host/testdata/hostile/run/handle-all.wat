;; Tries all small handles for one that is not its own, and copies what it finds into the object.
;; want: AccessError: handle
(data (i32.const 0) "spec")
(func $bad (local $h i32)
  (local.set $h (i32.const 3))
  (loop $l
    (local.set $h (i32.add (local.get $h) (i32.const 1)))
    (call $copy (i32.const 1) (i32.const 0) (i32.const 4) (local.get $h))
    (br $l)))
